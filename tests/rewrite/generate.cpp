/* SPDX-License-Identifier: MIT
 *
 * Variables, expressions, and whole programs (generator.h).
 */
#include "generator.h"

#include <algorithm>
#include <utility>

namespace fuzz
{

int generator::weighted(std::initializer_list<int> weights)
{
    int sum = 0, index = 0;
    for (int weight : weights) {
        sum += weight;
    }
    int at = below(sum);
    for (int weight : weights) {
        if (at < weight) {
            return index;
        }
        at -= weight;
        index++;
    }
    return 0;
}

/* ---- variables ------------------------------------------------------------------------------ */

int generator::add(const std::string &name, int owner)
{
    variable v;
    v.name = name + std::to_string(made.variables.size());
    v.function = owner;
    v.initial = below(4);
    made.variables.push_back(v);
    return (int)made.variables.size() - 1;
}

void generator::add_globals()
{
    for (int i = below(4); i > 0; i--) {
        variable &v = made.variables[add("g", GLOBAL)];
        v.is_static = chance(60) && !made.is_cuda;
        v.has_pointer = chance(25);
    }
    if (chance(15)) {
        made.variables[add("ga", GLOBAL)].is_array = true;
    }
    if (chance(20) && !made.is_cuda) {
        made.variables[add("gc", GLOBAL)].is_communicator = true;
    }
    if (chance(15)) {
        variable &v = made.variables[add("gq", GLOBAL)];
        v.is_pointer = true;
        v.initial = 0;
    }
}

/* A function; its first parameter bounds the depth of recursion. */
void generator::add_function()
{
    function f;
    int index = (int)made.functions.size();
    f.name = "f" + std::to_string(index);
    f.returns_pointer = chance(25);
    for (int i = 1 + below(3); i > 0; i--) {
        int parameter = add("p", index);
        made.variables[parameter].is_parameter = true;
        made.variables[parameter].is_communicator =
            i == 1 && !f.parameters.empty() && chance(15) && !made.is_cuda;
        f.parameters.push_back(parameter);
    }
    made.functions.push_back(f);
}

void generator::add_locals(int owner)
{
    for (int i = 1 + below(3); i > 0; i--) {
        variable &v = made.variables[add("x", owner)];
        v.has_pointer = chance(8);
    }
    if (chance(12) && !made.is_cuda) {
        variable &v = made.variables[add("s", owner)];
        v.is_static = true;
        v.has_pointer = chance(10);
    }
    if (chance(8)) {
        made.variables[add("a", owner)].is_array = true;
    }
    if (chance(10) && !made.is_cuda) {
        made.variables[add("c", owner)].is_communicator = true;
    }
    for (int i = chance(50) ? 1 + below(2) : 0; i > 0; i--) {
        variable &v = made.variables[add("q", owner)];
        v.is_pointer = true;
        v.is_static = chance(10) && !made.is_cuda;
        v.initial = 0;
    }
}

/* Variables that the function can name. `all`: also counters of loops around, and the rank. */
std::vector<int> generator::visible(bool arrays, bool communicators, bool all) const
{
    std::vector<int> found;
    for (size_t i = 0; i < made.variables.size(); i++) {
        const variable &v = made.variables[i];
        bool hidden = !all && current == 0 && ((int)i == rank || (int)i == size);
        for (int counter : counters) {
            hidden = hidden || (!all && counter == (int)i);
        }
        if ((v.function == GLOBAL || v.function == current) && !hidden && v.is_array == arrays &&
            v.is_communicator == communicators && !v.is_pointer) {
            found.push_back((int)i);
        }
    }
    if (found.empty() && !arrays && !communicators && !all) {
        return visible(false, false, true);
    }
    return found;
}

/* ---- expressions ---------------------------------------------------------------------------- */

node generator::read(int variable)
{
    bool pointed = made.variables[variable].has_pointer && chance(30);
    return make(pointed ? kind::POINTED : kind::VARIABLE, variable);
}

node generator::leaf()
{
    if (current == 0 && chance(divergence)) {
        return make(kind::VARIABLE, rank);
    }
    std::vector<int> arrays = visible(true, false, true);
    switch (weighted({6, 8, 1, 1, 2, 2})) {
    case 0:
        return number(below(5));
    case 2:
        return arrays.empty() ? number(1) : make(kind::ELEMENT, some(arrays), {number(below(4))});
    case 3:
        return make(kind::CONSTANT, 0, {read(target())});
    case 4:
        return current == 0 ? make(kind::ATOI, chance(50)) : read(target());
    case 5:
        return counters.empty() ? read(target()) : make(kind::VARIABLE, some(counters));
    default:
        return read(current == 0 && chance(15) ? size : target());
    }
}

node generator::value(int depth)
{
    if (depth <= 0) {
        return leaf();
    }
    switch (weighted({10, 8, 2, 2, 3, 1, 2, 1, 1, 2})) {
    case 1:
        return make(kind::BINARY, below(11), {value(depth - 1), value(depth - 1)});
    case 2:
        return make(kind::CONDITIONAL, 0,
                    {condition(depth - 1), value(depth - 1), value(depth - 1)});
    case 3:
        return change(depth - 1);
    case 4:
        return call(depth - 1);
    case 5:
        return make(kind::COMMA, 0, {change(depth - 1), value(depth - 1)});
    case 6:
        return make(chance(50) ? kind::AND : kind::OR, 0,
                    {condition(depth - 1), condition(depth - 1)});
    case 7:
        return make(kind::NOT, 0, {value(depth - 1)});
    case 8:
        return allocation(depth - 1);
    case 9:
        return test(depth - 1, false);
    default:
        return leaf();
    }
}

node generator::bounded(int depth, int bound)
{
    return make(kind::BINARY, 5, {value(depth), number(bound)});
}

node generator::condition(int depth)
{
    if (current == 0 && chance(divergence)) {
        return make(kind::BINARY, chance(50) ? 4 : 3,
                    {make(kind::VARIABLE, rank), number(below(3))});
    }
    if (depth > 0 && chance(25)) {
        return make(chance(50) ? kind::AND : kind::OR, 0,
                    {condition(depth - 1), condition(depth - 1)});
    }
    if (chance(15)) {
        return test(depth - 1, true);
    }
    static const int compares[] = {3, 4, 7, 9};
    return make(kind::BINARY, compares[below(4)], {value(depth - 1), number(below(4))});
}

/* An assignment. */
node generator::change(int depth)
{
    int to = target();
    std::vector<int> arrays = visible(true, false, true);
    bool pointer = made.variables[to].has_pointer;
    switch (weighted({10, 2, 2, pointer ? 6 : 0, arrays.empty() ? 0 : 3, perverse / 10})) {
    case 1:
        return make(kind::ADD, to, {value(depth)});
    case 2:
        return make(kind::INCREMENT, to);
    case 3:
        return make(kind::ASSIGN_POINTED, to, {value(depth)});
    case 4:
        return make(kind::ASSIGN_ELEMENT, some(arrays), {number(below(4)), value(depth)});
    case 5:
        return make(kind::ASSIGN_SET, to, {value(depth)});
    default:
        return make(kind::ASSIGN, to, {value(depth)});
    }
}

node generator::call(int depth)
{
    int count = (int)made.functions.size() - 1;
    if (count == 0) {
        return leaf();
    }
    int callee = 1 + below(count);
    node made_call = make(kind::CALL, callee);
    for (size_t i = 0; i < made.functions[callee].parameters.size(); i++) {
        int own = current ? made.functions[current].parameters[0] : 0;
        if (made.variables[made.functions[callee].parameters[i]].is_communicator) {
            made_call.parts.push_back(communicator());
        } else if (i == 0 && current) {
            made_call.parts.push_back(
                make(kind::BINARY, 1, {make(kind::VARIABLE, own), number(1)}));
        } else if (i == 0) {
            made_call.parts.push_back(chance(70) ? number(1 + below(3)) : bounded(depth, 3));
        } else {
            made_call.parts.push_back(value(depth));
        }
    }
    return made_call;
}

node generator::allocation(int depth)
{
    return make(kind::MALLOC, chance(20), {value(depth)});
}

node generator::communicator()
{
    std::vector<int> variables = visible(false, true, true);
    if (!variables.empty() && chance(40)) {
        return make(kind::COMMUNICATOR, some(variables));
    }
    return make(kind::COMMUNICATOR, chance(perverse / 2) && !made.is_cuda ? SELF : WORLD);
}

void generator::fill(int owner)
{
    current = owner;
    add_locals(owner);
    left = owner ? 4 + below(10) : 8 + below(20);
    node body = block(2 + chance(40), owner ? 2 + below(4) : 4 + below(8));
    if (owner) {
        int depth = made.functions[owner].parameters[0];
        node test = make(kind::BINARY, 3, {make(kind::VARIABLE, depth), number(1)});
        node end = make(kind::RETURN, 0, {result(0)});
        body.parts.insert(body.parts.begin(),
                          make(kind::IF, 0, {test, make(kind::BLOCK, 0, {end})}));
        body.parts.push_back(make(kind::RETURN, 0, {result(2)}));
    }
    for (int label : wanted) {
        place_label(body, label);
    }
    wanted.clear();
    if (owner == 0) {
        node world = make(kind::COMMUNICATOR, WORLD);
        body.parts.insert(body.parts.begin(), make(kind::SIZE, size, {world}));
        body.parts.insert(body.parts.begin(), make(kind::RANK, rank, {world}));
    }
    made.functions[owner].body = std::move(body);
}

/* Finds the leaves of expressions, and thrice those which are assigned. */
void generator::find_leaves(node &in, std::vector<node *> &found) const
{
    bool assigns = in.what >= kind::ASSIGN && in.what <= kind::ADD;
    if (assigns && in.parts.back().parts.empty()) {
        found.insert(found.end(), 3, &in.parts.back());
    }
    if (in.what == kind::NUMBER || in.what == kind::VARIABLE || in.what == kind::ATOI) {
        found.push_back(&in);
    }
    for (node &part : in.parts) {
        find_leaves(part, found);
    }
}

/* Puts the rank into one or two places of a program in which little else differs. */
void generator::inject()
{
    std::vector<node *> leaves;
    for (size_t i = 0; i < (shared() ? made.functions.size() : 1); i++) {
        find_leaves(made.functions[i].body, leaves);
    }
    for (int i = 1 + below(2); i > 0 && !leaves.empty(); i--) {
        node *at = leaves[below((int)leaves.size())];
        node name = make(kind::VARIABLE, rank);
        *at = chance(50) ? make(kind::BINARY, 4, {std::move(name), number(below(2))}) : name;
    }
}

/* Allocations at random places, with the sizes of random variables. */
void generator::probe(int owner)
{
    current = owner;
    for (int i = owner ? below(2) : 2; i > 0; i--) {
        std::vector<node> &body = made.functions[owner].body.parts;
        size_t place = chance(40) ? body.size() - (owner != 0) : 2 + random() % (body.size() - 1);
        node size_of = make(kind::MALLOC, 0, {read(target())});
        body.insert(body.begin() + (long)std::min(place, body.size()),
                    make(kind::EXPRESSION, 0, {size_of}));
    }
}

program generator::run()
{
    static const int levels[] = {0, 0, 0, 1, 3, 12};
    divergence = levels[below(6)];
    perverse = chance(40) ? 40 : 0;
    made.functions.push_back({"main", false, {}, {}});
    int arguments = add("argc", 0);
    made.variables[arguments].name = "argc";
    made.variables[arguments].is_parameter = true;
    made.functions[0].parameters.push_back(arguments);
    rank = add("rank", chance(35) ? GLOBAL : 0);
    size = add("size", chance(15) ? GLOBAL : 0);
    add_globals();
    for (int i = below(5); i > 0; i--) {
        add_function();
    }
    for (size_t i = made.functions.size(); i-- > 0;) {
        fill((int)i);
    }
    if (divergence < 2) {
        inject();
    }
    if (chance(25) && !made.is_cuda) {
        finalize();
    }
    for (size_t i = 0; i < made.functions.size(); i++) {
        probe((int)i);
    }
    return std::move(made);
}

program generate(unsigned long seed, bool is_cuda)
{
    return generator(seed, is_cuda).run();
}

} // namespace fuzz
