/* SPDX-License-Identifier: MIT
 *
 * The conditions under which the calls of a function can be collective, in terms of its callers
 * (decide.cpp): parameters that must not vary, and messages that must not come between.
 *
 * Whether messages come between depends on the callers, too: a call in a function may need that
 * none comes between the call of the function and the barrier before (B), or the one after it (A).
 * The beginning of an entry is a barrier before all its calls. The end of main() is one after them,
 * but that of a kernel is not: a thread that ends no longer keeps others waiting at
 * __syncthreads(), as if it had sent a message.
 *
 * A table of four bits says for each combination if the call is safe: bit 0 for neither, bit 1 for
 * B alone, bit 2 for A alone, bit 3 for both.
 */
#include "program.h"

#include <algorithm>

using namespace clang;

namespace rewrite
{
namespace
{

constexpr unsigned ROWS = 4;

/* No exchange comes between this point and the barrier, where B or A (`outside`) holds. */
bool is_clear(const exchange_state &state, bool outside)
{
    return !state.exchange && (!state.at_edge || outside);
}

/* The strongly connected components of a graph, each before all that lead to it (Tarjan, 1972). */
class component_finder
{
  public:
    using list = std::vector<size_t>;

    explicit component_finder(const std::vector<list> &edges)
        : edges(edges), index(edges.size()), lowest(edges.size())
    {
        for (size_t node = 0; node < edges.size(); node++) {
            if (!index[node]) {
                visit(node);
            }
        }
    }

    std::vector<list> found;

  private:
    struct step {
        size_t node, next; /* the edge to be followed */
    };

    void visit(size_t first)
    {
        enter(first);
        while (!open.empty()) {
            auto &[node, next] = open.back();
            if (next < edges[node].size()) {
                size_t other = edges[node][next++];
                if (!index[other]) {
                    enter(other);
                } else {
                    lowest[node] = std::min(lowest[node], index[other]);
                }
            } else {
                leave(node);
            }
        }
    }

    void enter(size_t node)
    {
        index[node] = lowest[node] = ++entered;
        open.push_back({node, 0});
        pending.push_back(node);
    }

    void leave(size_t node)
    {
        open.pop_back();
        if (!open.empty()) {
            lowest[open.back().node] = std::min(lowest[open.back().node], lowest[node]);
        }
        if (lowest[node] == index[node]) {
            auto begin = std::find(pending.rbegin(), pending.rend(), node).base() - 1;
            found.emplace_back(begin, pending.end());
            pending.erase(begin, pending.end());
            for (size_t member : found.back()) {
                index[member] = SIZE_MAX;
            }
        }
    }

    const std::vector<list> &edges;
    std::vector<size_t> index; /* from 1 on, in the order of entry; SIZE_MAX: in a component */
    std::vector<size_t> lowest;
    std::vector<step> open;
    list pending; /* entered, and in no component */
    size_t entered = 0;
};

} // namespace

/* The variance that must be empty for the call to be collective. */
variance program::needs(const decision &of) const
{
    variance found = of.site->reached;
    if (!of.site->callee) {
        return found | of.site->size;
    }
    uint64_t required = member_of(of.site->callee).required;
    if (required & variance::ALONE) {
        found.join(of.site->alone);
    }
    for (unsigned i = 0; i < variance::PARAMETERS; i++) {
        if (required >> i & 1) {
            found.join(i < of.site->arguments.size()
                           ? of.site->arguments[i]
                           : variance{0, of.in->explain_at(of.site->expression, false,
                                                           "an argument is missing", nullptr)});
        }
    }
    return found;
}

/* The table of a call within its function. */
unsigned program::table_of(const decision &of) const
{
    const message_flow &messages = *member_of(of.in).messages;
    size_t index = of.site - of.in->sites.data();
    unsigned table = 0;
    for (unsigned row = 0; row < ROWS; row++) {
        bool entry = of.in->is_entry;
        bool before = is_clear(messages.before[index], entry || (row & 1));
        bool after = is_clear(messages.after[index], (entry && !cuda) || (row & 2 && !entry));
        bool safe = of.site->callee
                        ? member_of(of.site->callee).tolerates >> (before + 2 * after) & 1
                        : before || after;
        table |= (unsigned)safe << row;
    }
    return table;
}

/* Find the functions that call each other with the argument. */
void program::find_components()
{
    std::vector<std::vector<size_t>> edges(members.size());
    for (const decision &d : decisions) {
        if (d.gets != flag::none && d.site->callee) {
            edges[d.in->number].push_back(d.site->callee->number);
        }
    }
    components = component_finder(edges).found;
    for (size_t i = 0; i < components.size(); i++) {
        for (size_t number : components[i]) {
            members[number]->component = i;
        }
        unsettled.add(i);
    }
}

/* Add the conditions of the function's calls that have the argument. Returns true if there are more
 * than before. */
bool program::find_conditions(member &of)
{
    uint64_t required = of.required;
    unsigned tolerates = of.tolerates;
    for (size_t i : of.decisions) {
        if (decisions[i].gets != flag::none) {
            required |= needs(decisions[i]).parameters;
            tolerates &= table_of(decisions[i]);
        }
    }
    steps++;
    bool grows = required != of.required || tolerates != of.tolerates;
    of.required = required;
    of.tolerates = tolerates;
    return grows;
}

/* Find the conditions of the functions of a component, for which those of all other functions that
 * they call are known. */
void program::settle(const std::vector<size_t> &component)
{
    std::vector<std::pair<uint64_t, unsigned>> before;
    sweep open;
    for (size_t number : component) {
        member &m = *members[number];
        before.emplace_back(m.required, m.tolerates);
        m.required = 0;
        m.tolerates = ALWAYS;
        open.add(number);
    }
    for (size_t number; open.next(number);) {
        if (find_conditions(*members[number])) {
            for (size_t i : members[number]->calls) {
                size_t caller = decisions[i].in->number;
                bool is_inner = members[caller]->component == members[number]->component;
                if (is_inner && decisions[i].gets != flag::none) {
                    open.add(caller);
                }
            }
        }
    }
    for (size_t i = 0; i < component.size(); i++) {
        const member &m = *members[component[i]];
        if (before[i] != std::make_pair(m.required, m.tolerates)) {
            look_at_callers(m);
        }
    }
}

/* The function has other conditions: look again at those that call it with the argument. */
void program::look_at_callers(const member &of)
{
    for (size_t i : of.calls) {
        const member &caller = member_of(decisions[i].in);
        if (decisions[i].gets != flag::none) {
            unfit.add(i);
            unserved.add(caller.analysis->number);
            if (caller.component != of.component) {
                unsettled.add(caller.component);
            }
        }
    }
}

/* Each function's conditions, from its calls that still have the argument. */
void program::summarise()
{
    for (size_t component; unsettled.next(component);) {
        settle(components[component]);
    }
}

/* The call meets these conditions of its callee, if its own callers do their part. */
bool program::fits(const decision &call, uint64_t required, unsigned tolerates) const
{
    if ((required & variance::ALONE) && call.site->alone.why) {
        return false;
    }
    for (unsigned i = 0; i < variance::PARAMETERS; i++) {
        if ((required >> i & 1) &&
            (i >= call.site->arguments.size() || call.site->arguments[i].why)) {
            return false;
        }
    }
    const message_flow &messages = *member_of(call.in).messages;
    size_t index = call.site - call.in->sites.data();
    bool before = is_clear(messages.before[index], true);
    bool after = is_clear(messages.after[index], true);
    return tolerates >> (before + 2 * after) & 1;
}

} // namespace rewrite
