/* SPDX-License-Identifier: MIT
 *
 * The work of `gpualloc rewrite` grows as the program does: with four times as many functions the
 * analysis takes about four times as many steps. In these programs each function calls the next
 * one, and what is found of one function changes the next one only, so that whole sweeps over all
 * functions would take 16 times as many steps.
 */
#include "decisions.h"

#include <cstdio>
#include <string>

namespace fuzz
{
namespace
{

constexpr int FUNCTIONS = 150, TIMES = 4;

/* The name of function i; functions are analysed in the order of their names. */
std::string name_of(int i, int count, bool is_backward)
{
    char text[16];
    std::snprintf(text, sizeof text, "f%05d", is_backward ? count - 1 - i : i);
    return text;
}

const char HEAD[] = "typedef unsigned long size_t; void *malloc(size_t);\n"
                    "int MPI_Init(int *, char ***); int MPI_Comm_rank(int, int *);\n"
                    "int MPI_Send(const void *, int, int, int, int, int);\n"
                    "#define MPI_COMM_WORLD 0x44000000\n"
                    "static int rank;\n";
const std::string SEND = "MPI_Send(&m, 1, 0, 0, 1, MPI_COMM_WORLD);";

std::string main_with(const std::string &calls)
{
    return "int main(int argc, char **argv)\n{\n    MPI_Init(&argc, &argv);\n"
           "    MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n" +
           calls + "    return 0;\n}\n";
}

std::string declare_all(int count, bool is_backward)
{
    std::string text = HEAD;
    for (int i = 0; i < count; i++) {
        text += "int " + name_of(i, count, is_backward) + "(int n, int m);\n";
    }
    return text;
}

/* All functions allocate by their parameters, and `calls` calls some of them. */
std::string allocate_all(int count, bool is_backward, const std::string &calls)
{
    std::string text = declare_all(count, is_backward);
    auto name = [&](int i) { return name_of(i, count, is_backward); };
    for (int i = 0; i < count; i++) {
        std::string next = i + 1 < count ? name(i + 1) + "(m, n)" : "0";
        text += "int " + name(i) +
                "(int n, int m)\n{\n    if (!malloc(m))\n        n++;\n    return " + next +
                ";\n}\n";
    }
    return text + main_with(calls);
}

/* The functions below the first third get the rank, too. */
std::string chain_of_contexts(int count, bool is_backward)
{
    auto name = [&](int i) { return name_of(i, count, is_backward); };
    return allocate_all(count, is_backward,
                        "    " + name(0) + "(argc, 3);\n    " + name(count / 3) +
                            "(rank, 3);\n    " + name(count / 2) + "(4, rank);\n");
}

/* All functions get the rank alone, so that their calls lose the argument from the first one on. */
std::string chain_of_arguments(int count, bool is_backward)
{
    return allocate_all(count, is_backward,
                        "    " + name_of(0, count, is_backward) + "(rank, rank);\n");
}

/* The last function alone allocates, for another size in each rank, so that the calls lose the
 * argument from there on. */
std::string chain_to_allocation(int count, bool is_backward)
{
    std::string text = declare_all(count, is_backward);
    auto name = [&](int i) { return name_of(i, count, is_backward); };
    for (int i = 0; i < count; i++) {
        std::string part =
            i + 1 < count ? "n += " + name(i + 1) + "(n, m);" : "malloc(rank); " + SEND;
        text += "int " + name(i) + "(int n, int m)\n{\n    " + part + "\n    return n + m;\n}\n";
    }
    return text + main_with("    " + name(0) + "(argc, 3);\n");
}

/* Each variable is set to the one before by a function that gets its value. */
std::string chain_of_variables(int count, bool is_backward)
{
    std::string text = HEAD + std::string("static int g0;\n"), calls = "    g0 = rank;\n";
    for (int i = 1; i <= count; i++) {
        std::string own = std::to_string(i), last = std::to_string(i - 1);
        std::string name = name_of(i - 1, count, is_backward);
        text += "static int g" + own + ";\nstatic void set" + own + "(int n) { g" + own +
                " = n; }\nvoid " + name + "(void)\n{\n    malloc(8);\n    set" + own + "(g" + last +
                ");\n}\n";
        calls += "    " + name + "();\n";
    }
    return text + main_with(calls);
}

/* Returns the number of steps, or 0 if the program does not compile or has no allocations. */
size_t steps_of(const std::string &text)
{
    decisions found;
    bool compiles = decide(text, rewrite::grade::flow, false, false, found);
    return compiles && found.allocations ? found.steps : 0;
}

bool check(const char *what, std::string (*make)(int, bool), bool is_backward)
{
    size_t few = steps_of(make(FUNCTIONS, is_backward));
    size_t many = steps_of(make(TIMES * FUNCTIONS, is_backward));
    bool is_right = few && many && many <= (TIMES + 1) * few;
    std::printf("%s of %s%s, %d and %d functions: %zu and %zu steps\n",
                is_right ? "ok: a chain" : "FAILED: a chain", what,
                is_backward ? ", callers last" : "", FUNCTIONS, TIMES * FUNCTIONS, few, many);
    return is_right;
}

} // namespace
} // namespace fuzz

int main()
{
    bool is_right = true;
    for (bool is_backward : {false, true}) {
        is_right &= fuzz::check("contexts", fuzz::chain_of_contexts, is_backward);
        is_right &= fuzz::check("arguments", fuzz::chain_of_arguments, is_backward);
        is_right &= fuzz::check("calls", fuzz::chain_to_allocation, is_backward);
        is_right &= fuzz::check("variables", fuzz::chain_of_variables, is_backward);
    }
    return is_right ? 0 : 1;
}
