/* SPDX-License-Identifier: MIT
 *
 * The analysis of all functions together (program.h): which of them to analyse again, in which
 * contexts they are called, and the messages between their calls.
 */
#include "program.h"

using namespace clang;

namespace rewrite
{

void program::run_all()
{
    while (!waiting.empty()) {
        member &next = *members[*waiting.begin()];
        waiting.erase(waiting.begin());
        running = next.analysis.get();
        contexts.add(running->number);
        steps++;
        if (next.analysis->analyse()) {
            waiting.insert(next.callers.begin(), next.callers.end());
        }
    }
    running = nullptr;
}

/* The variance of a value of a function over all its calls. */
const cause *program::resolve(const member &in, const variance &of) const
{
    const cause *why = of.why ? of.why : in.entry_varies;
    for (unsigned i = 0; i < in.parameter_varies.size() && i < variance::PARAMETERS; i++) {
        if (!why && (of.parameters >> i & 1)) {
            why = in.parameter_varies[i];
        }
    }
    return why || !(of.parameters & variance::ALONE) ? why : in.called_alone;
}

/* Why the function may be called other than by the calls that the analysis sees, or NULL. */
const cause *program::called_elsewhere(const member &of) const
{
    auto taken = address_taken.find(key_of(of.analysis->definition));
    return taken == address_taken.end() ? nullptr : taken->second;
}

/* One of the contexts of the function varies for that reason, or does not, if it is NULL. */
void program::set_context(member &of, const cause *&known, const cause *why)
{
    if (why && !known) {
        known = why;
        contexts.add(of.analysis->number);
        unresolved.insert(of.assigns.begin(), of.assigns.end());
    }
}

/* Pass the contexts of a function on to those that it calls. */
void program::pass_contexts(member &in)
{
    const cause *elsewhere = called_elsewhere(in);
    set_context(in, in.entry_varies, elsewhere);
    set_context(in, in.called_alone, elsewhere);
    for (const cause *&parameter : in.parameter_varies) {
        set_context(in, parameter, elsewhere);
    }
    for (const call_site &site : in.analysis->sites) {
        if (!site.callee) {
            continue;
        }
        member &callee = member_of(site.callee);
        set_context(callee, callee.entry_varies, resolve(in, site.reached));
        set_context(callee, callee.called_alone, resolve(in, site.alone));
        for (size_t i = 0; i < callee.parameter_varies.size(); i++) {
            set_context(callee, callee.parameter_varies[i],
                        i < site.arguments.size()
                            ? resolve(in, site.arguments[i])
                            : in.analysis->explain_at(site.expression, false,
                                                      "an argument is missing", nullptr));
        }
    }
}

/* Find which parameters vary in some call, and which functions some threads enter alone. */
void program::find_contexts()
{
    for (size_t number; contexts.next(number);) {
        steps++;
        pass_contexts(*members[number]);
    }
}

/* Decide which variables that outlive calls vary. Returns true if there are more than before. */
bool program::resolve_globals()
{
    for (global_variable *variable : unresolved) {
        steps++;
        for (const auto &[in, value] : variable->assigned) {
            vary(*variable, resolve(*members[in], value));
        }
    }
    unresolved.clear();
    return !waiting.empty();
}

void program::run_messages()
{
    sweep open;
    for (auto &m : members) {
        m->messages = std::make_unique<message_flow>(*m->analysis);
        if (m->analysis->graph()) {
            open.add(m->analysis->number);
        } else { /* any message may come in it */
            const cause *why = m->analysis->found.result.why;
            m->messages->found = {{why, true}, {why, true}, why};
        }
    }
    for (size_t number; open.next(number);) {
        member &m = *members[number];
        std::vector<const message_summary *> of_callees;
        for (const call_site &site : m.analysis->sites) {
            of_callees.push_back(site.callee ? &member_of(site.callee).messages->found : nullptr);
        }
        steps++;
        if (m.messages->analyse(of_callees)) {
            for (size_t caller : m.callers) {
                if (members[caller]->analysis->graph()) {
                    open.add(caller);
                }
            }
        }
    }
}

void program::analyse()
{
    bool flows = by == grade::flow || by == grade::none;
    find_all();
    find_ends();
    do {
        do {
            run_all();
            find_contexts();
        } while (resolve_globals());
        run_messages();
        flows ? decide() : decide_by_pattern();
    } while (flows && leave_calls_alone());
}

} // namespace rewrite
