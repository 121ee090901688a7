/* SPDX-License-Identifier: MIT */
#include "messages.h"

namespace rewrite
{

message_flow::message_flow(const function &of)
    : of(of), at_end(of.events.size()), at_beginning(of.events.size())
{
}

/* Run the events of a block, in one direction. `of_callees` has a summary for each site. */
void message_flow::run(unsigned block, bool forward, exchange_state &now,
                       const std::vector<const message_summary *> &of_callees)
{
    const std::vector<event> &events = of.events[block];
    for (size_t i = 0; i < events.size(); i++) {
        const event &next = events[forward ? i : events.size() - 1 - i];
        const message_summary *callee = next.what == event::CALL ? of_callees[next.site] : nullptr;
        switch (next.what) {
        case event::EXCHANGE:
            now.exchange = now.exchange ? now.exchange : next.why;
            found.waits = found.waits ? found.waits : next.why;
            break;
        case event::BARRIER:
            now = {};
            found.waits = found.waits ? found.waits : next.why;
            break;
        case event::SITE:
            (forward ? before : after)[next.site] = now;
            break;
        case event::CALL: {
            (forward ? before : after)[next.site] = now;
            const variance &who = of.sites[next.site].reached;
            found.waits = found.waits ? found.waits : callee->waits;
            if ((who.why || who.parameters) && callee->waits) {
                now.exchange = now.exchange ? now.exchange : callee->waits;
                break;
            }
            const exchange_state &inside = forward ? callee->before : callee->after;
            exchange_state behind = now;
            now = {};
            now.exchange = inside.exchange;
            if (inside.at_edge) {
                now.join(behind);
            }
            break;
        }
        }
    }
}

/* Returns true if a state has grown. */
bool message_flow::run_all(bool forward, const std::vector<const message_summary *> &of_callees)
{
    const control_graph &graph = *of.graph();
    const std::vector<unsigned> &order = graph.order();
    bool grows = false;
    for (size_t i = 0; i < order.size(); i++) {
        unsigned block = order[forward ? i : order.size() - 1 - i];
        exchange_state now;
        now.at_edge = forward ? i == 0 : graph.successors(block).empty();
        for (unsigned other : forward ? graph.predecessors(block) : graph.successors(block)) {
            now.join(forward ? at_end[other] : at_beginning[other]);
        }
        run(block, forward, now, of_callees);
        grows |= (forward ? at_end : at_beginning)[block].join(now);
    }
    return grows;
}

bool message_flow::analyse(const std::vector<const message_summary *> &of_callees)
{
    message_summary old = found;
    before.assign(of.sites.size(), {});
    after.assign(of.sites.size(), {});
    while (run_all(true, of_callees)) {
    }
    while (run_all(false, of_callees)) {
    }
    bool grows = !old.waits && found.waits;
    for (unsigned block : of.graph()->order()) {
        if (of.graph()->successors(block).empty()) {
            grows |= found.before.join(at_end[block]);
        }
    }
    return grows | found.after.join(at_beginning[of.graph()->order().front()]);
}

} // namespace rewrite
