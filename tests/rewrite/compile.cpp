/* SPDX-License-Identifier: MIT
 *
 * Compiles a program for the stack machine. A communicator is an integer: 0 is MPI_COMM_WORLD and
 * 1 MPI_COMM_SELF.
 */
#include "machine.h"

#include <utility>

namespace fuzz
{
namespace
{

class compiler
{
  public:
    compiler(program &of, compiled &to) : of(of), to(to)
    {
    }

    bool run();

  private:
    void place();
    int emit(code what, int a = 0, int b = 0)
    {
        to.code.push_back({what, a, b});
        return (int)to.code.size() - 1;
    }

    int here() const
    {
        return (int)to.code.size();
    }

    void patch(int jump)
    {
        to.code[jump].a = here();
    }

    void load(int variable);
    void store(int variable);
    void choose(const node &n);
    void logical(const node &n);
    void element(const node &n, code local, code global);
    void values(const node &n);
    void expression(const node &n);
    void body(const node &n);
    void branch(const node &n);
    void loop(const node &n);
    void cases(const node &n);
    void meet(const node &n);
    void message(const node &n);
    void statement(const node &n);
    void leave_loop(std::vector<int> &breaks, std::vector<int> &continues, int again);
    bool finish_labels();

    program &of;
    compiled &to;
    int function = 0, scratch = 0;
    bool valid = true;
    std::vector<int> breaks, continues; /* jumps to patch */
    int loops = 0, exits = 0;           /* how many constructs a continue or break can leave */
    std::map<int, int> labels;
    std::vector<std::pair<int, int>> gotos; /* jump, label */
};

/* Gives each variable a slot, and each function one more for switches. */
void compiler::place()
{
    to.locals.assign(of.functions.size(), 0);
    for (variable &v : of.variables) {
        int slots = v.is_array ? ELEMENTS : 1;
        if (v.is_local()) {
            v.slot = to.locals[v.function];
            to.locals[v.function] += slots;
        } else {
            v.slot = (int)to.globals.size();
            to.globals.resize(to.globals.size() + slots);
            to.globals[v.slot] = v.is_communicator ? 0 : v.initial;
        }
    }
    for (int &count : to.locals) {
        count++;
    }
}

void compiler::load(int variable)
{
    const fuzz::variable &v = of.variables[variable];
    emit(v.is_local() ? code::LOAD_LOCAL : code::LOAD_GLOBAL, v.slot);
}

void compiler::store(int variable)
{
    const fuzz::variable &v = of.variables[variable];
    emit(v.is_local() ? code::STORE_LOCAL : code::STORE_GLOBAL, v.slot);
}

void compiler::choose(const node &n)
{
    expression(n.parts[0]);
    int other = emit(code::JUMP_UNLESS);
    expression(n.parts[1]);
    int end = emit(code::JUMP);
    patch(other);
    expression(n.parts[2]);
    patch(end);
}

void compiler::logical(const node &n)
{
    bool is_and = n.what == kind::AND;
    expression(n.parts[0]);
    int skip = emit(is_and ? code::JUMP_UNLESS : code::JUMP_IF);
    expression(n.parts[1]);
    emit(code::NOT);
    emit(code::NOT);
    int end = emit(code::JUMP);
    patch(skip);
    emit(code::PUSH, !is_and);
    patch(end);
}

void compiler::element(const node &n, code local, code global)
{
    const fuzz::variable &v = of.variables[n.a];
    values(n);
    emit(v.is_local() ? local : global, v.slot);
}

void compiler::values(const node &n)
{
    for (const node &part : n.parts) {
        expression(part);
    }
}

void compiler::expression(const node &n)
{
    switch (n.what) {
    case kind::NUMBER:
        emit(code::PUSH, n.a);
        return;
    case kind::VARIABLE:
    case kind::POINTED:
        return load(n.a);
    case kind::ELEMENT:
        return element(n, code::INDEX_LOCAL, code::INDEX_GLOBAL);
    case kind::CONSTANT:
        values(n);
        emit(code::INDEX_FIXED);
        return;
    case kind::BINARY:
        values(n);
        emit(code::BINARY, n.a);
        return;
    case kind::NOT:
        values(n);
        emit(code::NOT);
        return;
    case kind::AND:
    case kind::OR:
        return logical(n);
    case kind::CONDITIONAL:
        return choose(n);
    case kind::COMMA:
        expression(n.parts[0]);
        emit(code::POP);
        return expression(n.parts[1]);
    case kind::ASSIGN:
    case kind::ASSIGN_POINTED:
    case kind::ASSIGN_SET:
        values(n);
        return store(n.a);
    case kind::ASSIGN_ELEMENT:
        return element(n, code::SET_LOCAL, code::SET_GLOBAL);
    case kind::ADD:
        values(n);
        load(n.a);
        emit(code::BINARY, 0);
        return store(n.a);
    case kind::INCREMENT:
        load(n.a);
        load(n.a);
        emit(code::PUSH, 1);
        emit(code::BINARY, 0);
        store(n.a);
        emit(code::POP);
        return;
    case kind::ATOI:
        emit(code::LOAD_GLOBAL, (int)to.globals.size()); /* the machine adds it */
        return;
    case kind::CALL:
        values(n);
        emit(code::CALL, n.a, n.b);
        if (of.functions[n.a].returns_pointer) {
            emit(code::NOT);
            emit(code::NOT);
        }
        return;
    case kind::TEST:
        expression(n.parts[0]);
        emit(code::NOT);
        if (n.a < TEST_EQUAL) {
            emit(code::NOT);
        }
        return;
    case kind::NOTHING:
        emit(code::PUSH, 0);
        return;
    case kind::POINTER:
        return load(n.a);
    case kind::ASSIGN_TO:
        values(n);
        return store(n.a);
    case kind::EITHER:
        return choose(n);
    case kind::MALLOC:
        values(n);
        emit(code::MALLOC, n.a, n.b);
        return;
    default: /* COMMUNICATOR */
        if (n.a < 0) {
            emit(code::PUSH, n.a == WORLD ? 0 : 1);
        } else {
            load(n.a);
        }
    }
}

void compiler::body(const node &n)
{
    for (const node &part : n.parts) {
        statement(part);
    }
}

void compiler::branch(const node &n)
{
    expression(n.parts[0]);
    int other = emit(code::JUMP_UNLESS);
    statement(n.parts[1]);
    if (n.parts.size() > 2) {
        int end = emit(code::JUMP);
        patch(other);
        statement(n.parts[2]);
        patch(end);
    } else {
        patch(other);
    }
}

/* Directs the jumps of a loop's body, and restores those of the constructs around it. */
void compiler::leave_loop(std::vector<int> &outer_breaks, std::vector<int> &outer_continues,
                          int again)
{
    for (int jump : breaks) {
        patch(jump);
    }
    for (int jump : continues) {
        to.code[jump].a = again;
    }
    breaks.swap(outer_breaks);
    continues.swap(outer_continues);
}

void compiler::loop(const node &n)
{
    std::vector<int> outer_breaks, outer_continues;
    breaks.swap(outer_breaks);
    continues.swap(outer_continues);
    loops++;
    exits++;
    if (n.what == kind::FOR) {
        expression(n.parts[0]);
        store(n.a);
        emit(code::POP);
    }
    int start = here(), again = start, end = -1;
    if (n.what == kind::DO) {
        statement(n.parts[0]);
        again = here();
        expression(n.parts[1]);
        emit(code::JUMP_IF, start);
    } else {
        if (n.what == kind::FOR) {
            load(n.a);
        }
        expression(n.parts[n.what == kind::FOR]);
        if (n.what == kind::FOR) {
            emit(code::BINARY, 3);
        }
        end = emit(code::JUMP_UNLESS);
        statement(n.parts.back());
        if (n.what == kind::FOR) {
            again = here();
            expression(make(kind::INCREMENT, n.a));
            emit(code::POP);
        }
        emit(code::JUMP, start);
        patch(end);
    }
    leave_loop(outer_breaks, outer_continues, again);
    loops--;
    exits--;
}

void compiler::cases(const node &n)
{
    std::vector<int> outer, starts;
    breaks.swap(outer);
    exits++;
    expression(n.parts[0]);
    emit(code::STORE_LOCAL, scratch);
    emit(code::POP);
    int other = -1;
    for (size_t i = 1; i < n.parts.size(); i++) {
        starts.push_back(-1);
        if (n.parts[i].a >= 0) {
            emit(code::LOAD_LOCAL, scratch);
            emit(code::PUSH, n.parts[i].a);
            emit(code::BINARY, 4);
            starts.back() = emit(code::JUMP_IF);
        }
    }
    int miss = emit(code::JUMP);
    for (size_t i = 1; i < n.parts.size(); i++) {
        if (n.parts[i].a < 0) {
            other = here();
        } else {
            patch(starts[i - 1]);
        }
        body(n.parts[i]);
        if (!n.parts[i].b) {
            breaks.push_back(emit(code::JUMP));
        }
    }
    for (int jump : breaks) {
        patch(jump);
    }
    to.code[miss].a = other < 0 ? here() : other;
    breaks.swap(outer);
    exits--;
}

void compiler::message(const node &n)
{
    if (n.what == kind::SEND) {
        load(n.a);
        expression(n.parts[0]);
        emit(code::SEND);
    } else {
        expression(n.parts[0]);
        emit(code::RECEIVE);
        store(n.a);
    }
    emit(code::POP);
}

/* Collective calls, and those of a communicator. */
void compiler::meet(const node &n)
{
    expression(n.parts[0]);
    switch (n.what) {
    case kind::BECOME:
        return store(n.a), (void)emit(code::POP);
    case kind::RANK:
    case kind::SIZE:
        emit(n.what == kind::RANK ? code::RANK : code::SIZE);
        return store(n.a), (void)emit(code::POP);
    case kind::SPLIT:
        expression(n.parts[1]);
        break;
    case kind::BROADCAST:
        expression(n.parts[1]);
        load(n.a);
        break;
    case kind::REDUCE:
        load(n.a);
        if (of.is_cuda) { /* __syncthreads_count() */
            emit(code::NOT);
            emit(code::NOT);
        }
        break;
    default:
        emit(code::PUSH, 0);
    }
    emit(code::MEET, (int)n.what);
    if (n.what == kind::BROADCAST || n.what == kind::SPLIT || n.what == kind::DUPLICATE) {
        store(n.a);
    } else if (n.what == kind::REDUCE) {
        store(n.b);
    }
    emit(code::POP);
}

void compiler::statement(const node &n)
{
    switch (n.what) {
    case kind::EXPRESSION:
        expression(n.parts[0]);
        emit(code::POP);
        return;
    case kind::BLOCK:
        return body(n);
    case kind::IF:
        return branch(n);
    case kind::WHILE:
    case kind::DO:
    case kind::FOR:
        return loop(n);
    case kind::SWITCH:
        return cases(n);
    case kind::BREAK:
        valid = valid && exits;
        breaks.push_back(emit(code::JUMP));
        return;
    case kind::CONTINUE:
        valid = valid && loops;
        continues.push_back(emit(code::JUMP));
        return;
    case kind::GOTO:
        gotos.emplace_back(emit(code::JUMP), n.a);
        return;
    case kind::LABEL:
        labels[n.a] = here();
        return;
    case kind::RETURN:
        expression(n.parts[0]);
        emit(code::RETURN);
        return;
    case kind::EXIT:
        emit(code::EXIT, n.a == EXIT_ONE || n.a == EXIT_MPI);
        return;
    case kind::ABORT:
        emit(code::ABORT);
        return;
    case kind::SEND:
    case kind::RECEIVE:
        return message(n);
    default:
        meet(n);
    }
}

bool compiler::finish_labels()
{
    for (auto [jump, label] : gotos) {
        if (!labels.count(label)) {
            return false;
        }
        to.code[jump].a = labels[label];
    }
    labels.clear();
    gotos.clear();
    return valid;
}

bool compiler::run()
{
    place();
    for (const fuzz::function &f : of.functions) {
        scratch = to.locals[function] - 1;
        to.entries.push_back(here());
        to.parameters.push_back((int)f.parameters.size());
        for (const variable &v : of.variables) {
            if (!v.is_local() || v.function != function || v.is_parameter) {
                continue;
            }
            for (int i = 0; i < (v.is_array ? ELEMENTS : 1); i++) {
                emit(code::PUSH, v.is_communicator || i ? 0 : v.initial);
                emit(code::STORE_LOCAL, v.slot + i);
                emit(code::POP);
            }
        }
        body(f.body);
        emit(code::PUSH, 0);
        emit(code::RETURN);
        if (!finish_labels()) {
            return false;
        }
        function++;
    }
    return true;
}

} // namespace

bool compile(program &of, compiled &to)
{
    return compiler(of, to).run();
}

} // namespace fuzz
