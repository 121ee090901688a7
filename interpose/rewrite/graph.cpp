/* SPDX-License-Identifier: MIT */
#include "graph.h"

#include <clang/AST/Stmt.h>
#include <llvm/Support/Casting.h>

#include <algorithm>
#include <utility>

namespace rewrite
{
namespace
{

constexpr unsigned NONE = ~0u;

/* The nodes reached from `start`, each after all that it leads to but for loops. */
std::vector<unsigned> postorder(unsigned start, const std::vector<std::vector<unsigned>> &edges)
{
    std::vector<unsigned> found;
    llvm::BitVector seen(edges.size());
    std::vector<std::pair<unsigned, unsigned>> open = {{start, 0}};
    seen.set(start);
    while (!open.empty()) {
        auto &[node, next] = open.back();
        if (next < edges[node].size()) {
            unsigned other = edges[node][next++];
            if (!seen[other]) {
                seen.set(other);
                open.push_back({other, 0});
            }
        } else {
            found.push_back(node);
            open.pop_back();
        }
    }
    return found;
}

} // namespace

control_graph::control_graph(const clang::CFG &cfg, const llvm::BitVector &ends,
                             const llvm::BitVector &early_exits)
    : after(cfg.getNumBlockIDs()), before(after.size()), deciders_of(after.size()),
      doomed(after.size()), parent(after.size(), NONE), number(after.size(), NONE)
{
    for (const clang::CFGBlock *block : cfg) {
        bool is_switch = llvm::isa_and_nonnull<clang::SwitchStmt>(block->getTerminatorStmt());
        for (const clang::CFGBlock::AdjacentBlock &edge : block->succs()) {
            /* An enumeration may have a value that is none of the cases. */
            const clang::CFGBlock *next =
                is_switch ? edge.getPossiblyUnreachableBlock() : edge.getReachableBlock();
            next = next ? next : edge.getReachableBlock();
            if (next && !ends[block->getBlockID()]) {
                after[block->getBlockID()].push_back(next->getBlockID());
            }
        }
    }
    find_order(cfg.getEntry().getBlockID());
    for (unsigned block : forward) {
        for (unsigned next : after[block]) {
            before[next].push_back(block);
        }
    }
    find_doomed(cfg.getExit().getBlockID(), ends, early_exits);
    find_post_dominators(cfg.getExit().getBlockID());
    find_deciders();
}

void control_graph::find_order(unsigned entry)
{
    forward = postorder(entry, after);
    std::reverse(forward.begin(), forward.end());
}

/* A block from which only blocks that end the program are reached, at last. A loop without an end
 * is none, nor is a block where threads may end by themselves. */
void control_graph::find_doomed(unsigned exit, const llvm::BitVector &ends,
                                const llvm::BitVector &early_exits)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (auto block = forward.rbegin(); block != forward.rend(); ++block) {
            bool all = !early_exits[*block] &&
                       (ends[*block] || (*block != exit && !after[*block].empty()));
            for (unsigned next : after[*block]) {
                all = all && doomed[next];
            }
            if (all && !doomed[*block]) {
                doomed.set(*block);
                changed = true;
            }
        }
    }
}

unsigned control_graph::common(unsigned a, unsigned b) const
{
    while (a != b) {
        unsigned &lower = number[a] < number[b] ? a : b;
        lower = parent[lower];
    }
    return a;
}

/* After Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", 2001, on the reversed
 * graph. */
void control_graph::find_post_dominators(unsigned exit)
{
    std::vector<std::vector<unsigned>> back(after.size());
    auto add = [&back](unsigned from, unsigned to) { back[to].push_back(from); };
    for (unsigned block : forward) {
        for (unsigned next : after[block]) {
            if (!doomed[block] && !doomed[next]) {
                add(block, next);
            }
        }
    }
    /* A block that loops forever gets an edge to the end: another block on that loop then does not
     * post-dominate the branch before it. */
    std::vector<unsigned> endless;
    llvm::BitVector reaches(after.size());
    for (unsigned block : postorder(exit, back)) {
        reaches.set(block);
    }
    for (unsigned block : forward) {
        if (!reaches[block] && !doomed[block]) {
            endless.push_back(block);
            add(block, exit);
        }
    }
    std::vector<std::vector<unsigned>> ahead(after.size());
    for (unsigned to = 0; to < back.size(); to++) {
        for (unsigned from : back[to]) {
            ahead[from].push_back(to);
        }
    }
    std::vector<unsigned> order = postorder(exit, back);
    for (unsigned i = 0; i < order.size(); i++) {
        number[order[i]] = i;
    }
    parent[exit] = exit;
    for (bool changed = true; changed;) {
        changed = false;
        for (auto block = order.rbegin() + 1; block != order.rend(); ++block) {
            unsigned found = NONE;
            for (unsigned next : ahead[*block]) {
                if (parent[next] != NONE) {
                    found = found == NONE ? next : common(found, next);
                }
            }
            if (parent[*block] != found) {
                parent[*block] = found;
                changed = true;
            }
        }
    }
}

void control_graph::find_deciders()
{
    auto add = [this](unsigned block, unsigned branch) {
        std::vector<unsigned> &list = deciders_of[block];
        if (std::find(list.begin(), list.end(), branch) == list.end()) {
            list.push_back(branch);
        }
    };
    for (unsigned branch : forward) {
        if (after[branch].size() < 2) {
            continue;
        }
        for (unsigned next : after[branch]) {
            if (doomed[next] || doomed[branch]) {
                add(next, branch);
                continue;
            }
            for (unsigned at = next; at != parent[branch]; at = parent[at]) {
                add(at, branch);
            }
        }
    }
}

} // namespace rewrite
