/* SPDX-License-Identifier: MIT
 *
 * Makes random programs in which most values and branches are equal in all ranks, and a few are
 * not: the rank, received values, and all that follows from them.
 */
#ifndef GPUALLOC_TESTS_REWRITE_GENERATOR_H
#define GPUALLOC_TESTS_REWRITE_GENERATOR_H

#include "tree.h"

#include <initializer_list>
#include <random>
#include <vector>

namespace fuzz
{

class generator
{
  public:
    generator(unsigned long seed, bool is_cuda) : random(seed)
    {
        made.is_cuda = is_cuda;
    }

    program run();

  private:
    int below(int bound)
    {
        return (int)(random() % (unsigned)bound);
    }

    bool chance(int percent)
    {
        return below(100) < percent;
    }

    int weighted(std::initializer_list<int> weights);
    int add(const std::string &name, int owner);
    void add_globals();
    void add_function();
    void add_locals(int owner);
    void fill(int owner);
    std::vector<int> visible(bool arrays, bool communicators, bool counters) const;
    int some(const std::vector<int> &of)
    {
        return of[below((int)of.size())];
    }

    int target()
    {
        return some(visible(false, false, false));
    }

    /* All functions know the rank. */
    bool shared() const
    {
        return made.variables[rank].function == GLOBAL;
    }

    node read(int variable);
    node leaf();
    node value(int depth);
    node bounded(int depth, int bound);
    node condition(int depth);
    std::vector<int> pointers() const;
    node pointer(int depth);
    node test(int depth, bool is_condition);
    node result(int depth);
    node keep(int depth);
    node change(int depth);
    node call(int depth);
    node allocation(int depth);
    node communicator();

    node block(int depth, int count);
    node branch(int depth);
    node loop(int depth);
    node cases(int depth);
    node leave(int depth);
    node exit();
    void finalize();
    node collective(int depth);
    node pair(int depth);
    node messages();
    node make_communicator(int depth);
    node statement(int depth);
    void place_label(node &body, int label);
    void find_leaves(node &in, std::vector<node *> &found) const;
    void inject();
    void probe(int owner);

    std::mt19937_64 random;
    program made;
    int divergence = 0; /* percent */
    int perverse = 0;   /* percent: rare constructs */
    int current = 0, loops = 0, switches = 0, left = 0;
    int rank = 0, size = 0;            /* variables of main */
    std::vector<int> counters, wanted; /* loop variables in use; labels to place */
};

} // namespace fuzz

#endif
