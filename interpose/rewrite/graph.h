/* SPDX-License-Identifier: MIT
 *
 * Control dependence in a function (Ferrante, Ottenstein and Warren, 1987): a block depends on a
 * branch if one way out of the branch always leads to the block, and another may avoid it.
 */
#ifndef GPUALLOC_REWRITE_GRAPH_H
#define GPUALLOC_REWRITE_GRAPH_H

#include <clang/Analysis/CFG.h>
#include <llvm/ADT/BitVector.h>

#include <vector>

namespace rewrite
{

/* The graphs have an element for each expression. */
clang::CFG::BuildOptions graph_options();

class control_graph
{
  public:
    /* `ends` has the blocks that end the whole program, by their numbers: no thread goes on beside
     * them, so a branch to one is no branch. In `early_exits` blocks threads may end by themselves,
     * so that the program need not end behind them. Blocks from which the function's end cannot
     * be reached loop forever; they depend on all branches that lead to them. */
    control_graph(const clang::CFG &cfg, const llvm::BitVector &ends,
                  const llvm::BitVector &early_exits);

    /* The blocks whose branches decide directly whether a block runs, or how often. */
    const std::vector<unsigned> &deciders(unsigned block) const
    {
        return deciders_of[block];
    }

    /* The blocks that are entered, each after its predecessors as far as there are no loops. */
    const std::vector<unsigned> &order() const
    {
        return forward;
    }

    const std::vector<unsigned> &successors(unsigned block) const
    {
        return after[block];
    }

    const std::vector<unsigned> &predecessors(unsigned block) const
    {
        return before[block];
    }

    /* Every path from the block ends the program, and no thread ends before that. */
    bool is_doomed(unsigned block) const
    {
        return doomed[block];
    }

  private:
    void find_order(unsigned entry);
    void find_doomed(unsigned exit, const llvm::BitVector &ends,
                     const llvm::BitVector &early_exits);
    void find_post_dominators(unsigned exit);
    void find_deciders();
    unsigned common(unsigned a, unsigned b) const;

    std::vector<std::vector<unsigned>> after, before, deciders_of;
    std::vector<unsigned> forward;
    llvm::BitVector doomed;
    std::vector<unsigned> parent; /* immediate post-dominator; of the end: itself */
    std::vector<unsigned> number; /* in a postorder of the reversed graph */
};

} // namespace rewrite

#endif
