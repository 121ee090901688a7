/* SPDX-License-Identifier: MIT
 *
 * Random pointers to allocated blocks, and tests of them (generator.h).
 */
#include "generator.h"

namespace fuzz
{

std::vector<int> generator::pointers() const
{
    std::vector<int> found;
    for (size_t i = 0; i < made.variables.size(); i++) {
        const variable &v = made.variables[i];
        if (v.is_pointer && (v.function == GLOBAL || v.function == current)) {
            found.push_back((int)i);
        }
    }
    return found;
}

node generator::pointer(int depth)
{
    std::vector<int> known = pointers();
    bool deep = depth > 0, any = !known.empty();
    switch (weighted({8, any ? 8 : 0, 1, deep ? 2 : 0, deep && any ? 2 : 0, deep ? 3 : 0})) {
    case 1:
        return make(kind::POINTER, some(known));
    case 2:
        return make(kind::NOTHING);
    case 3:
        return make(kind::EITHER, 0,
                    {condition(depth - 1), pointer(depth - 1), pointer(depth - 1)});
    case 4:
        return make(kind::ASSIGN_TO, some(known), {pointer(depth - 1)});
    case 5:
        for (int tries = 0; tries < 4; tries++) {
            node made_call = call(depth - 1);
            if (made_call.what == kind::CALL && made.functions[made_call.a].returns_pointer) {
                return made_call;
            }
        }
        return allocation(0);
    default:
        return allocation(depth - 1);
    }
}

node generator::test(int depth, bool is_condition)
{
    static const int as_value[] = {TEST_UNEQUAL, TEST_CHOICE, TEST_TWICE, TEST_EQUAL, TEST_NOT};
    int how = is_condition && chance(40) ? (int)TEST_PLAIN : as_value[below(5)];
    return make(kind::TEST, how, {pointer(depth)});
}

/* The value that the function returns. */
node generator::result(int depth)
{
    return made.functions[current].returns_pointer ? pointer(depth) : value(depth);
}

/* An allocation that is kept in a variable, and perhaps what follows if it has failed. */
node generator::keep(int depth)
{
    std::vector<int> known = pointers();
    if (known.empty()) {
        return make(kind::EXPRESSION, 0, {change(2)});
    }
    int to = some(known);
    node found = make(kind::BLOCK);
    found.parts.push_back(
        make(kind::EXPRESSION, 0, {make(kind::ASSIGN_TO, to, {pointer(chance(60) ? 0 : 2)})}));
    if (chance(60)) {
        node failed = make(kind::TEST, chance(70) ? TEST_NOT : TEST_EQUAL,
                           {make(kind::POINTER, chance(85) ? to : some(known))});
        node then = chance(70) ? make(kind::RETURN, 0, {result(0)}) : statement(depth - 1);
        found.parts.push_back(make(kind::IF, 0, {failed, make(kind::BLOCK, 0, {then})}));
    }
    return found;
}

} // namespace fuzz
