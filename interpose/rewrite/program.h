/* SPDX-License-Identifier: MIT
 *
 * The program that the files make together, and the decision for each of its allocations.
 */
#ifndef GPUALLOC_REWRITE_PROGRAM_H
#define GPUALLOC_REWRITE_PROGRAM_H

#include "endings.h"
#include "function.h"
#include "messages.h"
#include "sweep.h"

#include <clang/AST/ASTContext.h>
#include <llvm/ADT/DenseMap.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rewrite
{

/* How much the analysis sees. */
enum class grade {
    pattern,    /* the paper's: calls that are not below an if, a loop or a ?: */
    call_graph, /* that, and functions that allocate through others */
    flow,       /* function.h; the only one that is sound */
    none        /* as flow, but no call gets the argument */
};

enum class verdict {
    together,     /* all threads call, for equally many bytes */
    sizes_differ, /* all threads call */
    divergent,    /* some threads may call alone */
    unknown
};

/* The argument that a call gets. */
enum class flag {
    none,
    always, /* true */
    passed  /* coalesce, the parameter of the function around it */
};

struct decision {
    const call_site *site = nullptr;
    function *in = nullptr;
    verdict what = verdict::unknown;
    flag gets = flag::none;
    const cause *why = nullptr; /* of all verdicts but `together`, and where it gets no argument */
};

class program : public surroundings
{
  public:
    /* `project`: the folder of the files that may be changed, with a slash at its end. */
    program(bool cuda, grade by, std::string project)
        : cuda(cuda), by(by), project(std::move(project))
    {
        library("MPI_Alltoall");
    }

    /* The function of a library takes the argument `coalesce` last. */
    void library(const std::string &name)
    {
        registry[name] = {registry.emplace(name, allocation_function()).first->first.c_str(), -1,
                          -1, true};
    }

    /* Add all functions of a file. The context lives as long as the program. */
    void add(clang::ASTContext &file);

    /* Analyse all functions, and decide on all calls that allocate or that lead to allocations. */
    void analyse();

    std::vector<decision> decisions; /* in the order of the sources */

    /* Visits of functions, calls and variables so far: the work of the analysis, for tests. */
    size_t steps = 0;

    /* The function gets the parameter `coalesce`. */
    bool has_parameter(const function *f) const;

    /* All declarations of the function, of all files. */
    const std::vector<const clang::FunctionDecl *> &declarations_of(const function *f) const;

    std::vector<const function *> functions() const;

    /* By the functions' numbers. */
    std::vector<bool> find_reached(bool other_files) const;

    /* The folder of the files that may be changed. */
    const std::string &folder() const
    {
        return project;
    }

    /* The function is defined in the files. */
    bool has(const clang::FunctionDecl *f)
    {
        return find(f) != nullptr;
    }

    function *find(const clang::FunctionDecl *called) override;
    variance global(const clang::VarDecl *variable) override;
    void assign_global(const clang::VarDecl *variable, const variance &value,
                       const function &in) override;
    void share_global(const clang::VarDecl *variable, const cause *why) override;
    const cause *stays_alone(const clang::Expr *call, const clang::FunctionDecl *in) override;
    void meet_apart(unsigned kinds, const cause *why) override;
    const cause *meets_apart(meeting kind) override;
    void call_unknown(const cause *why) override;
    const allocation_function *registered(llvm::StringRef name) override;
    const cause *explain(const void *key, cause why) override;
    const cause *explained(const void *key, llvm::StringRef text) const override;
    bool errors_are_fatal() const override;
    bool ends_all(const clang::CallExpr *call) const override;
    bool is_cuda() const override;

  private:
    static constexpr unsigned ALWAYS = 15; /* in all rows of a table (conditions.cpp) */

    struct global_variable {
        const cause *why = nullptr;
        bool outside = false;                /* functions of which nothing is known may assign it */
        std::map<size_t, variance> assigned; /* by the functions' numbers */
        std::set<size_t> readers;
    };

    /* A function and the results that need the rest of the program. */
    struct member {
        std::unique_ptr<function> analysis;
        std::unique_ptr<message_flow> messages;
        std::set<size_t> callers;
        std::set<global_variable *> assigns;
        std::vector<const cause *> parameter_varies; /* in some call, or NULL */
        const cause *entry_varies = nullptr; /* not all threads enter it together in some call */
        const cause *called_alone = nullptr; /* why some call of it gets no argument */
        const cause *left_alone = nullptr;   /* why it cannot get the parameter */
        bool is_decided = false;             /* left_alone is known */
        std::vector<size_t> decisions;       /* of its sites */
        std::vector<size_t> calls;           /* decisions for the calls of this function */
        uint64_t required = 0;               /* parameters that must not vary where it gets true */
        unsigned tolerates = ALWAYS;         /* rows of a table (conditions.cpp) */
        size_t component = 0; /* of functions that call each other (conditions.cpp) */
    };

    void add_function(const clang::FunctionDecl *f);
    void give_up(const clang::FunctionDecl *f, const clang::Stmt *part);
    void take_address(const clang::FunctionDecl *f, const std::string &text, const void *key,
                      clang::SourceLocation where);
    void look_at(const clang::Stmt *body);
    void look_at_name(const clang::DeclRefExpr *name, bool is_called);
    void look_at_variable(const clang::VarDecl *variable);
    void find_all();
    void find_ends();

    /* contexts.cpp */
    void run_all();
    const cause *called_elsewhere(const member &of) const;
    void set_context(member &of, const cause *&known, const cause *why);
    void pass_contexts(member &in);
    void find_contexts();
    const cause *resolve(const member &in, const variance &of) const;
    bool resolve_globals();
    void vary(global_variable &variable, const cause *why);
    void run_messages();

    /* conditions.cpp */
    variance needs(const decision &of) const;
    unsigned table_of(const decision &of) const;
    bool fits(const decision &call, uint64_t required, unsigned tolerates) const;
    void find_components();
    bool find_conditions(member &of);
    void settle(const std::vector<size_t> &component);
    void look_at_callers(const member &of);
    void summarise();

    /* decide.cpp */
    bool leave_calls_alone();
    void decide();
    const cause *leave_alone(const member &of) const;
    const cause *declarations_obstacle(const member &of) const;
    void make_decisions(member &of);
    void find_calls();
    bool is_served(const decision &of) const;
    void find_shared();
    void drop(decision &of, verdict what, const cause *why);
    bool drop_sites();
    bool drop_calls();
    bool drop_unreached();
    bool drop_disagreeing();
    const cause *no_caller(const member &of) const;
    const cause *explain_needs(const decision &of) const;
    verdict verdict_of(const decision &of, const cause *why) const;
    void refuse(decision &of, verdict what, const cause *why);

    /* patterns.cpp */
    void decide_by_pattern();
    bool has_pattern(const decision &call) const;

    member &member_of(const function *f) const;
    const std::string &key_of(const clang::Decl *declaration) const;
    void add_initial(const clang::VarDecl *variable, const clang::Stmt *value);

    const bool cuda;
    const grade by;
    const std::string project;
    std::map<std::string, allocation_function> registry;
    std::map<std::string, std::vector<const clang::FunctionDecl *>> declarations;
    bool fatal = true;
    const cause *renamed = nullptr; /* a declaration by which a variable may have two names */
    endings ends;
    std::set<std::string> defined; /* variables that outlive a call, of all files */
    std::map<std::string, const clang::FunctionDecl *> definitions;
    std::set<std::string> ambiguous; /* functions with several definitions that differ */
    mutable std::unordered_map<const clang::Decl *, std::string> keys; /* key_of() */
    llvm::DenseMap<const clang::FunctionDecl *, member *> known; /* by canonical declaration */
    std::map<std::string, member *> by_key;
    std::vector<std::unique_ptr<member>> members; /* by their functions' numbers */
    std::map<std::string, global_variable> globals;
    std::map<std::string, const cause *> address_taken; /* functions */
    std::set<std::string> aliases;                      /* functions that have another name */
    std::set<size_t> waiting; /* functions to analyse again, by their numbers */
    sweep contexts;           /* functions whose calls may have other contexts than before */
    std::set<global_variable *> unresolved;      /* with new values, or values in new contexts */
    std::vector<std::vector<size_t>> components; /* functions, callees before their callers */
    sweep unsettled;                             /* components whose conditions may have changed */
    sweep unserved;                              /* functions that drop_sites() has to look at */
    sweep unfit;                                 /* decisions that drop_calls() has to look at */
    /* Decisions for sources that are compiled several times, and the first one for the source. */
    std::vector<std::pair<size_t, size_t>> shared;
    const function *running = nullptr;
    const cause *unknown_call = nullptr;     /* a function of which nothing is known */
    std::map<unsigned, const cause *> apart; /* by kinds: a collective call made by some alone */
    std::set<size_t> collective;             /* functions with collective calls */
    std::map<const clang::Expr *, const cause *> calls_alone; /* that get no argument */
    causes all_causes;
    std::unordered_map<const void *, std::vector<const cause *>> causes_of; /* by keys */
};

} // namespace rewrite

#endif
