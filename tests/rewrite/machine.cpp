/* SPDX-License-Identifier: MIT */
#include "machine.h"

#include <algorithm>
#include <cstdint>

namespace fuzz
{
namespace
{

constexpr int STEPS = 6000, DEPTH = 40, ALLOCATION = -1;
const int fixed_values[ELEMENTS] = {3, 1, 4, 1};

struct frame {
    int function, back; /* the instruction after the call */
    size_t locals;      /* where they begin */
    bool coalesce;
};

/* One collective call or allocation, of all ranks of a communicator. */
struct meeting {
    int what = 0, root = 0; /* of an allocation: its site and size */
    int arrived = 0, sum = 0, of_root = 0;
    bool root_arrived = false, split = false;
    std::vector<int> values; /* of each member; later the results of a split */
};

struct communicator {
    std::vector<int> members, place; /* ranks; each rank's number in it, or -1 */
    std::vector<meeting> meetings;
    std::vector<size_t> next; /* of each member */
};

struct rank {
    int at = 0, steps = 0;
    bool ended = false, waits = false, finalized = false;
    unsigned requests[2] = {0, 0}; /* allocations alone, and together */
    std::vector<int> stack, locals, globals;
    std::vector<frame> frames;

    int pop()
    {
        int value = stack.back();
        stack.pop_back();
        return value;
    }
};

struct channel {
    std::vector<int> sent;
    size_t received = 0, taken = 0; /* taken: sends that have returned */
};

class machine
{
  public:
    machine(const compiled &of, const setting &how, std::string &why);
    outcome run();

  private:
    bool step();
    bool advance(const instruction &now);
    void memory(const instruction &now);
    void binary(int operation);
    bool call(const instruction &now);
    bool finish_call();
    bool allocate(const instruction &now);
    int block(bool together);
    bool meet(const instruction &now);
    bool arrive(communicator &in, meeting &at, int what, int root, int value);
    void split(communicator &in, meeting &at);
    bool is_over(const communicator &in, const meeting &at, int what);
    bool send();
    bool receive();
    bool ask_communicator(bool size);
    int add_communicator(const std::vector<int> &members);
    bool stop(outcome with, const std::string &text);
    argument argument_at(int site) const;

    const compiled &of;
    const setting &how;
    std::string &why;
    outcome found = outcome::DONE;
    std::vector<rank> ranks;
    std::vector<communicator> communicators;
    communicator allocations;
    std::vector<channel> channels;
    rank *now = nullptr;
    int number = 0;
};

machine::machine(const compiled &of, const setting &how, std::string &why)
    : of(of), how(how), why(why), ranks(how.ranks), channels(how.ranks * how.ranks)
{
    std::vector<int> all;
    for (int i = 0; i < how.ranks; i++) {
        all.push_back(i);
        rank &r = ranks[i];
        r.at = of.entries[0];
        r.globals = of.globals;
        r.globals.push_back(how.string);
        r.locals.assign(of.locals[0], 0);
        r.locals[0] = how.arguments;
        r.frames.push_back({0, -1, 0, false});
    }
    add_communicator(all);
    allocations = communicators[0];
    communicators.emplace_back(); /* MPI_COMM_SELF */
}

/* Ends all; for the callers' convenience it is false. */
bool machine::stop(outcome with, const std::string &text)
{
    if (found == outcome::DONE) {
        found = with;
        why = "rank " + std::to_string(number) + " of " + std::to_string(how.ranks) + ": " + text;
    }
    return false;
}

argument machine::argument_at(int site) const
{
    auto at = how.sites.find(site);
    return at == how.sites.end() ? argument::NONE : at->second;
}

int machine::add_communicator(const std::vector<int> &members)
{
    communicator made;
    made.members = members;
    made.place.assign(how.ranks, -1);
    made.next.assign(how.ranks, 0);
    for (size_t i = 0; i < members.size(); i++) {
        made.place[members[i]] = (int)i;
    }
    communicators.push_back(std::move(made));
    return (int)communicators.size() - 1;
}

/* ---- meetings ------------------------------------------------------------------------------- */

/* Splits a communicator by the values of its members, at its last member's arrival. */
void machine::split(communicator &in, meeting &at)
{
    std::map<int, std::vector<int>> groups;
    std::vector<int> result(at.values.size());
    for (size_t i = 0; i < in.members.size(); i++) {
        groups[at.values[i]].push_back(in.members[i]);
    }
    int made = (int)communicators.size();
    for (const auto &group : groups) {
        for (int member : group.second) {
            result[in.place[member]] = made;
        }
        made++;
    }
    at.split = true;
    at.values = result;
    for (const auto &group : groups) {
        add_communicator(group.second); /* invalidates `in` and `at` */
    }
}

/* The first step of a rank in a meeting. */
bool machine::arrive(communicator &in, meeting &at, int what, int root, int value)
{
    if (at.arrived && (at.what != what || at.root != root)) {
        if (what == ALLOCATION || &in == &allocations) {
            return stop(outcome::MISMATCH, "site " + std::to_string(what) + ", size " +
                                               std::to_string(root) + "; another rank: site " +
                                               std::to_string(at.what) + ", size " +
                                               std::to_string(at.root));
        }
        return stop(outcome::ERRONEOUS, "collective calls do not match");
    }
    at.what = what;
    at.root = root;
    at.values.resize(in.members.size());
    at.values[in.place[number]] = value;
    at.sum = (int)((unsigned)at.sum + (unsigned)value);
    at.arrived++;
    if (in.place[number] == root) {
        at.root_arrived = true;
        at.of_root = value;
    }
    return true;
}

bool machine::is_over(const communicator &in, const meeting &at, int what)
{
    bool eager = how.eager && &in != &allocations && what == (int)kind::BROADCAST;
    int ended = 0; /* those that have arrived and ended count twice, when it is over anyway */
    for (const rank &r : ranks) {
        ended += how.is_cuda && &in != &allocations && r.ended;
    }
    return eager ? at.root_arrived : at.arrived + ended >= (int)in.members.size();
}

/* The result of an allocation: 0 is NULL. All ranks that allocate together get it, or none. Equal
 * in runs that wait and in those that do not. */
int machine::block(bool together)
{
    unsigned mixed = how.seed + now->requests[together]++ * 0x9e3779b9u;
    mixed += together ? 0 : 0x85ebca6bu * (unsigned)(number + 1);
    mixed = (mixed ^ mixed >> 15) * 0x2c1b3c6du;
    mixed = (mixed ^ mixed >> 12) * 0x297a2d39u;
    return (int)((mixed >> 8) % 100) >= how.failures;
}

bool machine::allocate(const instruction &now_at)
{
    argument given = argument_at(now_at.b);
    bool together =
        given == argument::ALWAYS || (given == argument::PASSED && now->frames.back().coalesce);
    if (!how.collective || !together) {
        now->stack.back() = block(together);
        now->at++;
        return true;
    }
    size_t index = allocations.next[number];
    if (allocations.meetings.size() <= index) {
        allocations.meetings.resize(index + 1);
    }
    meeting &at = allocations.meetings[index];
    if (!now->waits && !arrive(allocations, at, now_at.b, now->stack.back(), 0)) {
        return false;
    }
    now->waits = !is_over(allocations, at, now_at.b);
    if (now->waits) {
        return false;
    }
    allocations.next[number]++;
    now->stack.back() = block(true);
    now->at++;
    return true;
}

/* On the stack: the communicator, the root of a broadcast, and a value. */
bool machine::meet(const instruction &now_at)
{
    bool has_root = now_at.a == (int)kind::BROADCAST;
    size_t top = now->stack.size();
    int value = now->stack[top - 1], root = has_root ? now->stack[top - 2] : -1;
    int id = now->stack[top - 2 - has_root];
    if (id == 1) { /* of one rank */
        if (has_root && root != 0) {
            return stop(outcome::ERRONEOUS, "there is no such root");
        }
        value = now_at.a == (int)kind::REDUCE || has_root ? value : 1;
    } else {
        communicator &in = communicators[id];
        size_t index = in.next[number];
        if (has_root && (root < 0 || root >= (int)in.members.size())) {
            return stop(outcome::ERRONEOUS, "there is no such root");
        }
        if (in.meetings.size() <= index) {
            in.meetings.resize(index + 1);
        }
        meeting &at = in.meetings[index];
        int color = now_at.a == (int)kind::DUPLICATE ? 0 : value;
        if (!now->waits && !arrive(in, at, now_at.a, root, color)) {
            return false;
        }
        now->waits = !is_over(in, at, now_at.a);
        if (now->waits) {
            return false;
        }
        in.next[number]++;
        if (now_at.a == (int)kind::SPLIT || now_at.a == (int)kind::DUPLICATE) {
            if (!at.split) {
                split(in, at);
            }
            const communicator &same = communicators[id];
            value = same.meetings[index].values[same.place[number]];
        } else {
            value = has_root ? at.of_root : now_at.a == (int)kind::REDUCE ? at.sum : value;
        }
    }
    now->finalized = now_at.a == (int)kind::FINALIZE;
    now->stack.resize(top - 2 - has_root);
    now->stack.push_back(value);
    now->at++;
    return true;
}

bool machine::ask_communicator(bool size)
{
    int id = now->stack.back();
    const communicator &in = communicators[id];
    now->stack.back() = id == 1 ? size : size ? (int)in.members.size() : in.place[number];
    now->at++;
    return true;
}

/* ---- messages ------------------------------------------------------------------------------- */

bool machine::send()
{
    int to = now->stack.back();
    if (to < 0 || to >= how.ranks) {
        return stop(outcome::ERRONEOUS, "there is no such rank");
    }
    channel &way = channels[number * how.ranks + to];
    if (!now->waits) {
        way.sent.push_back(now->stack[now->stack.size() - 2]);
    }
    now->waits = !how.buffered && way.received < way.sent.size();
    if (now->waits) {
        return false;
    }
    now->pop();
    now->at++;
    return true;
}

bool machine::receive()
{
    int from = now->stack.back();
    if (from < 0 || from >= how.ranks) {
        return stop(outcome::ERRONEOUS, "there is no such rank");
    }
    channel &way = channels[from * how.ranks + number];
    if (way.received == way.sent.size()) {
        now->waits = true;
        return false;
    }
    now->waits = false;
    now->stack.back() = way.sent[way.received++];
    now->at++;
    return true;
}

/* ---- the rest ------------------------------------------------------------------------------- */

void machine::binary(int operation)
{
    auto y = (unsigned)now->pop(), x = (unsigned)now->pop();
    int a = (int)x, b = (int)y;
    /* Division by zero and overflow are undefined; here they have one result in all ranks. */
    bool divides = b != 0 && b != -1;
    const int results[] = {
        (int)(x + y),        (int)(x - y), (int)(x * y),        a < b,  a == b,      (int)(x & y),
        divides ? a % b : 0, a > b,        divides ? a / b : 0, a != b, (int)(x | y)};
    now->stack.push_back(results[operation]);
}

void machine::memory(const instruction &now_at)
{
    auto slot = [&](bool local, int index) -> int & {
        size_t base = local ? now->frames.back().locals : 0;
        return (local ? now->locals : now->globals)[base + now_at.a + (index & (ELEMENTS - 1))];
    };
    auto local = [&](code what) { return now_at.what == what; };
    switch (now_at.what) {
    case code::LOAD_LOCAL:
    case code::LOAD_GLOBAL:
        now->stack.push_back(slot(local(code::LOAD_LOCAL), 0));
        break;
    case code::STORE_LOCAL:
    case code::STORE_GLOBAL:
        slot(local(code::STORE_LOCAL), 0) = now->stack.back();
        break;
    case code::INDEX_LOCAL:
    case code::INDEX_GLOBAL:
        now->stack.back() = slot(local(code::INDEX_LOCAL), now->stack.back());
        break;
    default: {
        int value = now->pop();
        slot(local(code::SET_LOCAL), now->stack.back()) = value;
        now->stack.back() = value;
    }
    }
}

bool machine::call(const instruction &now_at)
{
    if (now->frames.size() >= DEPTH) {
        return stop(outcome::BUDGET, "the recursion is too deep");
    }
    argument given = argument_at(now_at.b);
    bool coalesce =
        given == argument::ALWAYS || (given == argument::PASSED && now->frames.back().coalesce);
    size_t base = now->locals.size(), count = of.locals[now_at.a];
    now->locals.resize(base + count);
    size_t parameters = of.parameters[now_at.a];
    for (size_t i = parameters; i-- > 0;) {
        now->locals[base + i] = now->pop();
    }
    now->frames.push_back({now_at.a, now->at + 1, base, coalesce});
    now->at = of.entries[now_at.a];
    return true;
}

bool machine::finish_call()
{
    frame done = now->frames.back();
    now->frames.pop_back();
    now->locals.resize(done.locals);
    if (now->frames.empty()) {
        now->ended = true;
        return false;
    }
    now->at = done.back;
    return true;
}

/* Executes an instruction. Returns false if the rank waits or has ended. */
bool machine::advance(const instruction &next)
{
    bool is_mpi = next.what >= code::MEET && next.what <= code::RECEIVE;
    if (is_mpi && now->finalized) {
        return stop(outcome::ERRONEOUS, "MPI has ended");
    }
    switch (next.what) {
    case code::CALL:
        return call(next);
    case code::RETURN:
        return finish_call();
    case code::MALLOC:
        return allocate(next);
    case code::EXIT:
        if (next.a && !now->finalized) {
            return stop(outcome::ABORTED, "a failure ends all");
        }
        now->ended = true;
        return false;
    case code::ABORT:
        return stop(outcome::ABORTED, "abort()");
    case code::MEET:
        return meet(next);
    case code::RANK:
    case code::SIZE:
        return ask_communicator(next.what == code::SIZE);
    case code::SEND:
        return send();
    case code::RECEIVE:
        return receive();
    case code::JUMP:
        now->at = next.a;
        return true;
    case code::JUMP_IF:
    case code::JUMP_UNLESS: {
        bool taken = (now->pop() != 0) == (next.what == code::JUMP_IF);
        now->at = taken ? next.a : now->at + 1;
        return true;
    }
    case code::PUSH:
        now->stack.push_back(next.a);
        break;
    case code::POP:
        now->pop();
        break;
    case code::NOT:
        now->stack.back() = !now->stack.back();
        break;
    case code::BINARY:
        binary(next.a);
        break;
    case code::INDEX_FIXED:
        now->stack.back() = fixed_values[now->stack.back() & (ELEMENTS - 1)];
        break;
    default:
        memory(next);
    }
    now->at++;
    return true;
}

/* Runs the rank until it waits. Returns true if it got anywhere. */
bool machine::step()
{
    int before = now->steps;
    bool waited = now->waits;
    while (found == outcome::DONE && advance(of.code[now->at])) {
        if (++now->steps > STEPS) {
            return stop(outcome::BUDGET, "too many steps");
        }
    }
    return now->steps != before || now->waits != waited || now->ended;
}

outcome machine::run()
{
    for (bool moves = true; moves && found == outcome::DONE;) {
        moves = false;
        for (int i = 0; i < how.ranks && found == outcome::DONE; i++) {
            number = how.backward ? how.ranks - 1 - i : i;
            now = &ranks[number];
            if (!now->ended) {
                moves |= step();
            }
        }
    }
    for (number = 0; number < how.ranks && found == outcome::DONE; number++) {
        if (!ranks[number].ended) {
            const instruction &at = of.code[ranks[number].at];
            stop(outcome::DEADLOCK,
                 "waits for ever" + (at.what == code::MALLOC ? " at line " + std::to_string(at.b)
                                                             : std::string()));
        }
    }
    for (const communicator &in : communicators) {
        for (const meeting &at : in.meetings) {
            if (at.arrived < (int)in.members.size() && !how.is_cuda) {
                stop(outcome::ERRONEOUS, "some ranks make no matching call");
            }
        }
    }
    return found;
}

} // namespace

outcome execute(const compiled &program, const setting &how, std::string &why)
{
    return machine(program, how, why).run();
}

} // namespace fuzz
