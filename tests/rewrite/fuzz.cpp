/* SPDX-License-Identifier: MIT
 *
 * Finds allocations that `gpualloc rewrite` makes collective although not all ranks make them
 * together, or with equal sizes. Each random program is analysed, and executed twice on several
 * numbers of ranks: as it is, and with collective allocations that wait for all ranks. If only the
 * second one deadlocks, or ranks meet with different sizes or sites, the analysis is wrong.
 *
 *   fuzz SEED COUNT [SECONDS [GRADE]]   tries the programs of COUNT seeds from SEED, for so long at
 *                                       most
 *   fuzz SEED                           prints the program of one seed, and the decisions
 *   fuzz --cuda ...                     likewise, with kernels of CUDA for MPI programs in C
 *
 * GRADE: flow, unless it is pattern or callgraph, or null: flow, but any allocation, collective or
 * not, is thought to give NULL to all ranks or to none. These three are known to be wrong, so that
 * the fuzzer must fail with them.
 */
#include "decisions.h"
#include "machine.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace fuzz
{
namespace
{

constexpr int SIZES[] = {2, 3, 5, 32};

rewrite::grade by = rewrite::grade::flow; /* of all analyses */
bool trusts_null = false, is_cuda = false;

struct statistics {
    long programs = 0, refused = 0, discarded = 0, sites = 0, together = 0, runs = 0, complete = 0;
};

/* A random setting for each number of ranks, equal for equal seeds. */
setting choose(unsigned long seed, int ranks)
{
    std::mt19937_64 random(seed * 64 + ranks);
    setting how;
    how.ranks = ranks;
    how.arguments = 1 + (int)(random() % 4);
    how.string = (int)(random() % 6);
    how.buffered = random() % 2;
    how.eager = random() % 2;
    how.backward = random() % 2;
    how.seed = (unsigned)random();
    static const int failures[] = {0, 10, 30, 60};
    how.failures = failures[random() % 4];
    how.is_cuda = is_cuda;
    how.buffered = how.buffered || is_cuda;
    how.eager = how.eager && !is_cuda;
    return how;
}

/* Returns true if the program is as right with collective allocations as without. */
bool check(unsigned long seed, const compiled &of, const decisions &found, statistics &all,
           std::string &why)
{
    int complete = 0;
    for (int ranks : SIZES) {
        setting how = choose(seed, ranks);
        how.sites = found.arguments;
        all.runs++;
        if (execute(of, how, why) != outcome::DONE) {
            continue;
        }
        all.complete++;
        complete++;
        how.collective = true;
        if (execute(of, how, why) != outcome::DONE) {
            why += std::string("; argc ") + std::to_string(how.arguments) + ", argv[1] " +
                   std::to_string(how.string) + (how.buffered ? ", buffered" : "") +
                   (how.eager ? ", eager" : "");
            return false;
        }
    }
    all.discarded += !complete;
    return true;
}

bool try_program(unsigned long seed, program &of, statistics &all, std::string &text,
                 std::string &why)
{
    decisions found;
    compiled code;
    text = print(of);
    if (!compile(of, code) || !decide(text, by, trusts_null, is_cuda, found)) {
        why = "the program does not compile";
        all.refused++;
        return true;
    }
    all.sites += found.allocations;
    all.together += found.together;
    if (!found.together) {
        return true;
    }
    return check(seed, code, found, all, why);
}

/* ---- reduction ------------------------------------------------------------------------------ */

/* Simpler nodes that could stand where the node stands. */
std::vector<node> simpler(const node &n)
{
    std::vector<node> found;
    if (n.what == kind::BLOCK || n.what == kind::CASE || n.what == kind::SWITCH) {
        for (size_t i = n.what == kind::SWITCH; i < n.parts.size(); i++) {
            node less = n;
            less.parts.erase(less.parts.begin() + (long)i);
            found.push_back(less);
        }
        return found;
    }
    if (n.what == kind::IF) {
        found.push_back(n.parts[1]);
        if (n.parts.size() > 2) {
            found.push_back(n.parts[2]);
            node less = n;
            less.parts.pop_back();
            found.push_back(less);
        }
        return found;
    }
    if (n.what == kind::FOR || n.what == kind::WHILE) {
        return {n.parts.back()};
    }
    if (n.what == kind::DO) {
        return {n.parts[0]};
    }
    if (n.what > kind::EXPRESSION || n.what == kind::NUMBER || n.what == kind::COMMUNICATOR) {
        return found;
    }
    if (n.what >= kind::NOTHING && n.what < kind::COMMUNICATOR) {
        found = {make(kind::NOTHING)};
        if (n.what == kind::EITHER) {
            found.insert(found.end(), {n.parts[1], n.parts[2]});
        }
        return n.what == kind::NOTHING ? std::vector<node>() : found;
    }
    if (n.what == kind::EXPRESSION) {
        return n.parts[0].what == kind::NUMBER ? found : std::vector<node>();
    }
    found = {number(0), number(1)};
    if (n.what == kind::VARIABLE || n.what == kind::TEST) {
        return found;
    }
    for (const node &part : n.parts) {
        if (part.what != kind::COMMUNICATOR) {
            found.push_back(part);
        }
    }
    return found;
}

class reducer
{
  public:
    reducer(unsigned long seed, program of) : seed(seed), best(std::move(of))
    {
    }

    program run()
    {
        for (bool smaller = true; smaller;) {
            smaller = false;
            for (size_t i = 0; i < best.functions.size(); i++) {
                smaller |= reduce(best.functions[i].body);
            }
        }
        return best;
    }

  private:
    bool fails()
    {
        statistics ignored;
        std::string text, why;
        program copy = best;
        return !try_program(seed, copy, ignored, text, why);
    }

    /* Replaces the node, a part of `best`, as long as the program fails. */
    bool reduce(node &n)
    {
        bool smaller = false;
        for (bool again = true; again;) {
            again = false;
            for (node &candidate : simpler(n)) {
                node old = n;
                n = candidate;
                if (fails()) {
                    again = smaller = true;
                    break;
                }
                n = old;
            }
        }
        for (node &part : n.parts) {
            smaller |= reduce(part);
        }
        return smaller;
    }

    unsigned long seed;
    program best;
};

void report(unsigned long seed, const program &of)
{
    statistics ignored;
    std::string text, why;
    program least = reducer(seed, of).run();
    try_program(seed, least, ignored, text, why);
    std::printf("seed %lu: a call gets `true` although not all ranks make it together\n%s%s\n",
                seed, text.c_str() + text.find("void set(int"), why.c_str());
}

int show(unsigned long seed)
{
    program of = generate(seed, is_cuda);
    statistics all;
    std::string why;
    std::string text = print(of);
    decisions found;
    std::printf("%s", text.c_str());
    decide(text, by, trusts_null, is_cuda, found);
    for (auto [line, gets] : found.arguments) {
        std::printf("line %d: %s\n", line, gets == argument::ALWAYS ? "true" : "coalesce");
    }
    bool right = try_program(seed, of, all, text, why);
    std::printf("%s %s\n", right ? "right" : "wrong", why.c_str());
    return right ? 0 : 1;
}

int run(unsigned long first, long count, double seconds, int failures)
{
    using clock = std::chrono::steady_clock;
    auto begin = clock::now();
    statistics all;
    double spent = 0;
    for (long i = 0; i < count && (seconds == 0 || spent < seconds); i++) {
        std::string text, why;
        program of = generate(first + (unsigned long)i, is_cuda);
        all.programs++;
        if (!try_program(first + (unsigned long)i, of, all, text, why)) {
            report(first + (unsigned long)i, of);
            if (--failures <= 0) {
                return 1;
            }
        }
        spent = std::chrono::duration<double>(clock::now() - begin).count();
    }
    std::printf(
        "%ld programs, %ld refused, %ld discarded; %ld allocation sites, %ld together (%.1f %%); "
        "%ld of %ld runs complete; %.0f programs/s\n",
        all.programs, all.refused, all.discarded, all.sites, all.together,
        100.0 * (double)all.together / (double)(all.sites ? all.sites : 1), all.complete, all.runs,
        (double)all.programs / spent);
    /* Programs that are not analysed, or that do not run, show nothing. */
    bool shows =
        all.programs < 100 || (all.together * 10 >= all.sites && all.complete > all.programs);
    if (!shows) {
        std::printf("too few collective allocations, or too few complete runs\n");
    }
    return shows ? 0 : 3;
}

} // namespace
} // namespace fuzz

int main(int argc, char **argv)
{
    if (argc > 1 && std::strcmp(argv[1], "--cuda") == 0) {
        fuzz::is_cuda = true;
        argc--;
        argv++;
    }
    if (argc < 2) {
        std::fprintf(stderr, "usage: fuzz [--cuda] SEED [COUNT [SECONDS [GRADE]]]\n");
        return 2;
    }
    unsigned long seed = std::strtoul(argv[1], nullptr, 10);
    if (argc < 3) {
        return fuzz::show(seed);
    }
    if (argc > 4) {
        fuzz::trusts_null = std::strcmp(argv[4], "null") == 0;
        fuzz::by = std::strcmp(argv[4], "pattern") == 0     ? rewrite::grade::pattern
                   : std::strcmp(argv[4], "callgraph") == 0 ? rewrite::grade::call_graph
                                                            : rewrite::grade::flow;
    }
    const char *failures = std::getenv("FUZZ_FAILURES");
    return fuzz::run(seed, std::strtol(argv[2], nullptr, 10),
                     argc > 3 ? std::strtod(argv[3], nullptr) : 0,
                     failures ? std::atoi(failures) : 1);
}
