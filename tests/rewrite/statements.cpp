/* SPDX-License-Identifier: MIT
 *
 * Random statements (generator.h).
 */
#include "generator.h"

#include <algorithm>
#include <utility>

namespace fuzz
{

node generator::block(int depth, int count)
{
    node found = make(kind::BLOCK);
    for (int i = 0; i < count && left > 0; i++) {
        found.parts.push_back(statement(depth));
    }
    return found;
}

node generator::branch(int depth)
{
    node found = make(kind::IF, 0, {condition(2)});
    found.parts.push_back(block(depth - 1, 1 + below(3)));
    if (chance(35)) {
        found.parts.push_back(block(depth - 1, 1 + below(2)));
    }
    return found;
}

node generator::loop(int depth)
{
    loops++;
    int outer = switches, counter = target();
    switches = 0;
    node found;
    if (chance(60)) {
        counters.push_back(counter);
        node bound = chance(50) ? number(1 + below(3)) : bounded(1, 3);
        found = make(kind::FOR, counter, {number(0), bound, block(depth - 1, 1 + below(3))});
        counters.pop_back();
    } else {
        node test = make(kind::BINARY, 3, {make(kind::INCREMENT, counter), bounded(1, 3)});
        if (chance(30)) {
            test = make(kind::AND, 0, {test, condition(1)});
        }
        node body = block(depth - 1, 1 + below(3));
        found = chance(50) ? make(kind::DO, 0, {body, test}) : make(kind::WHILE, 0, {test, body});
    }
    loops--;
    switches = outer;
    return found;
}

node generator::cases(int depth)
{
    node found = make(kind::SWITCH, 0, {value(1)});
    int count = 1 + below(3), other = chance(40) ? below(count) : -1;
    switches++;
    for (int i = 0; i < count; i++) {
        node one = block(depth - 1, 1 + below(2));
        one.what = kind::CASE;
        one.a = i == other ? -1 : i;
        one.b = chance(30);
        found.parts.push_back(one);
    }
    switches--;
    return found;
}

node generator::exit()
{
    if (made.is_cuda) { /* __trap() */
        return make(kind::EXIT, EXIT_ONE);
    }
    switch (weighted({3, 4, 2, 1})) {
    case 0:
        return make(kind::EXIT, EXIT_ZERO);
    case 1:
        return make(kind::EXIT, EXIT_ONE);
    case 2:
        return make(kind::EXIT, EXIT_MPI);
    default:
        return make(kind::EXIT, EXIT_VARIABLE, {}, target());
    }
}

/* MPI_Finalize() near the end of a function, mostly main, and what may follow. */
void generator::finalize()
{
    current = chance(80) ? 0 : below((int)made.functions.size());
    left = 3;
    std::vector<node> &body = made.functions[current].body.parts;
    size_t place = body.size() - (size_t)below((int)std::min<size_t>(body.size(), 4));
    node end = make(kind::FINALIZE, 0, {make(kind::COMMUNICATOR, WORLD)});
    std::vector<node> added = {end};
    if (chance(30)) {
        added = {make(kind::IF, 0, {condition(1), make(kind::BLOCK, 0, {end})})};
    }
    for (int i = below(3); i > 0; i--) {
        added.push_back(chance(60)
                            ? make(kind::IF, 0, {condition(1), make(kind::BLOCK, 0, {exit()})})
                            : make(kind::EXPRESSION, 0, {call(1)}));
    }
    place = std::min(std::max<size_t>(place, 2), body.size());
    body.insert(body.begin() + (long)place, added.begin(), added.end());
}

/* A jump, mostly under a condition. */
node generator::leave(int depth)
{
    node jump;
    switch (weighted({5, loops || switches ? 5 : 0, loops ? 4 : 0, 3, 2, 1})) {
    case 0:
        jump = make(kind::RETURN, 0, {result(1)});
        break;
    case 1:
        jump = make(kind::BREAK);
        break;
    case 2:
        jump = make(kind::CONTINUE);
        break;
    case 3:
        jump = make(kind::GOTO, made.labels);
        wanted.push_back(made.labels++);
        break;
    case 4:
        jump = exit();
        break;
    default:
        jump = make(kind::ABORT);
    }
    (void)depth;
    return make(kind::IF, 0, {condition(1), make(kind::BLOCK, 0, {jump})});
}

node generator::collective(int depth)
{
    switch (weighted({4, 5, 3})) {
    case 0:
        return make(kind::BARRIER, 0, {communicator()});
    case 1:
        return make(kind::BROADCAST, target(),
                    {communicator(), chance(85) ? number(below(2)) : bounded(depth > 2, 1)});
    default:
        return make(kind::REDUCE, target(), {communicator()}, target());
    }
}

/* if (c) MPI_Bcast(...); else MPI_Bcast(...); */
node generator::pair(int depth)
{
    node one = collective(depth), other = one;
    other.a = one.what == kind::BROADCAST ? target() : other.a;
    other.b = one.what == kind::REDUCE ? target() : other.b;
    return make(kind::IF, 0,
                {condition(1), make(kind::BLOCK, 0, {one}), make(kind::BLOCK, 0, {other})});
}

/* Rank 0 sends, or receives, at two places of which either can be anywhere in the program. */
node generator::messages()
{
    int from = below(2), there = rank;
    auto on = [&](int who, node what) {
        node test = make(kind::BINARY, 4, {make(kind::VARIABLE, there), number(who)});
        return make(kind::IF, 0, {test, make(kind::BLOCK, 0, {std::move(what)})});
    };
    node found = make(kind::BLOCK);
    node send = on(from, make(kind::SEND, target(), {number(1 - from)}));
    node receive = on(1 - from, make(kind::RECEIVE, target(), {number(from)}));
    bool first = chance(50);
    found.parts.push_back(first ? send : receive);
    for (int i = below(3); i > 0 && left > 0; i--) {
        found.parts.push_back(statement(1));
    }
    found.parts.push_back(first ? receive : send);
    return found;
}

node generator::make_communicator(int depth)
{
    std::vector<int> variables = visible(false, true, true);
    if (variables.empty()) {
        return collective(depth);
    }
    int to = some(variables);
    switch (weighted({4, 3, 2})) {
    case 0:
        return make(
            kind::SPLIT, to,
            {communicator(), chance(60) && current == 0
                                 ? make(kind::BINARY, 5, {make(kind::VARIABLE, rank), number(1)})
                                 : bounded(1, 1)});
    case 1:
        return make(kind::DUPLICATE, to, {communicator()});
    default:
        return make(kind::BECOME, to, {communicator()});
    }
}

node generator::statement(int depth)
{
    left--;
    bool deep = depth > 0;
    switch (weighted({16, 14, deep ? 9 : 0, deep ? 6 : 0, deep ? 2 : 0, 5, 6, 5, 1,
                      current == 0 || shared() ? 3 : 0, 1, 1 + divergence / 8, 1, 9})) {
    case 0:
        return make(kind::EXPRESSION, 0, {change(2)});
    case 1:
        return make(kind::EXPRESSION, 0, {allocation(chance(70) ? 0 : 2)});
    case 2:
        return branch(depth);
    case 3:
        return loop(depth);
    case 4:
        return cases(depth);
    case 5:
        return leave(depth);
    case 6:
        return make(kind::EXPRESSION, 0, {call(1)});
    case 7:
        return collective(depth);
    case 8:
        return pair(depth);
    case 9:
        return messages();
    case 10:
        return make_communicator(depth);
    case 11:
        return chance(50) && current ? make(kind::RANK, target(), {communicator()})
                                     : make(kind::EXPRESSION, 0, {change(1)});
    case 13:
        return keep(depth);
    default:
        return make(kind::SIZE, target(), {communicator()});
    }
}

/* Puts the label into some block of the function, which may be in a loop. */
void generator::place_label(node &body, int label)
{
    node *at = &body;
    for (;;) {
        std::vector<node *> inner;
        for (node &part : at->parts) {
            for (node &deeper : part.parts) {
                if (deeper.what == kind::BLOCK || deeper.what == kind::CASE) {
                    inner.push_back(&deeper);
                }
            }
        }
        if (inner.empty() || chance(60)) {
            break;
        }
        at = inner[below((int)inner.size())];
    }
    int place = below((int)at->parts.size() + 1);
    at->parts.insert(at->parts.begin() + place, make(kind::LABEL, label));
}

} // namespace fuzz
