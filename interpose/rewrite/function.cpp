/* SPDX-License-Identifier: MIT */
#include "function.h"

#include "walk.h"

#include <clang/AST/ASTContext.h>
#include <clang/AST/ExprCXX.h>
#include <clang/AST/StmtCXX.h>
#include <clang/AST/StmtOpenMP.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Lexer.h>
#include <llvm/Support/Casting.h>

using namespace clang;
using llvm::cast;
using llvm::dyn_cast;
using llvm::dyn_cast_or_null;
using llvm::isa;

namespace rewrite
{

CFG::BuildOptions graph_options()
{
    CFG::BuildOptions options;
    options.setAllAlwaysAdd(); /* an element for each expression */
    options.AddImplicitDtors = true;
    options.AddTemporaryDtors = true;
    options.AddInitializers = true;
    return options;
}

/* A value may be read from a union as another type, such as an address as a number. */
static bool has_union(QualType type)
{
    const RecordDecl *record = type->isRecordType() ? type->getAsRecordDecl() : nullptr;
    if (!record || type->isUnionType()) {
        return record;
    }
    for (const FieldDecl *field : record->fields()) {
        if (has_union(field->getASTContext().getBaseElementType(field->getType()))) {
            return true;
        }
    }
    return false;
}

bool is_followed(const VarDecl *variable)
{
    QualType type = variable->getType();
    bool is_array = type->isArrayType(); /* an array of variable length has no elements at first */
    type = variable->getASTContext().getBaseElementType(type);
    return !type.isVolatileQualified() && !type->isReferenceType() && !has_union(type) &&
           !(is_array && (isa<ParmVarDecl>(variable) || !variable->hasGlobalStorage()));
}

/* `x` in `x[i]`, where x is an array and no pointer, or NULL. */
static const Expr *array_of(const Expr *place)
{
    const auto *element = dyn_cast<ArraySubscriptExpr>(place);
    const auto *decays = element ? dyn_cast<CastExpr>(element->getBase()->IgnoreParens()) : nullptr;
    return decays && decays->getCastKind() == CK_ArrayToPointerDecay ? decays->getSubExpr()
                                                                     : nullptr;
}

std::vector<const Expr *> indices_of(const Expr *place)
{
    std::vector<const Expr *> found;
    for (place = place->IgnoreParens();; place = place->IgnoreParens()) {
        if (const Expr *array = array_of(place)) {
            found.push_back(cast<ArraySubscriptExpr>(place)->getIdx());
            place = array;
        } else if (isa<MemberExpr>(place) && !cast<MemberExpr>(place)->isArrow()) {
            place = cast<MemberExpr>(place)->getBase();
        } else {
            return found;
        }
    }
}

const VarDecl *variable_of(const Expr *place)
{
    for (place = place->IgnoreParens();; place = place->IgnoreParens()) {
        const auto *member = dyn_cast<MemberExpr>(place);
        const Expr *array = array_of(place);
        if (array) {
            place = array;
        } else if (member && !member->isArrow()) {
            place = member->getBase();
        } else {
            break;
        }
    }
    const auto *name = dyn_cast<DeclRefExpr>(place);
    return name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
}

const VarDecl *variable_pointed_to(const Expr *argument)
{
    const auto *address = dyn_cast<UnaryOperator>(argument->IgnoreParenCasts());
    if (!address || address->getOpcode() != UO_AddrOf) {
        return nullptr;
    }
    const auto *name = dyn_cast<DeclRefExpr>(address->getSubExpr()->IgnoreParens());
    return name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
}

bool is_named(const Expr *expression, llvm::StringRef name, const ASTContext &context)
{
    const SourceManager &sources = context.getSourceManager();
    SourceLocation at = expression->IgnoreParenCasts()->getBeginLoc();
    for (; at.isMacroID(); at = sources.getImmediateMacroCallerLoc(at)) {
        if (Lexer::getImmediateMacroName(at, sources, context.getLangOpts()) == name) {
            return true;
        }
    }
    const auto *named = dyn_cast<DeclRefExpr>(expression->IgnoreParenCasts());
    return named && named->getDecl()->getNameAsString() == name;
}

/* In MPICH a number, in Open MPI the address of a variable. A cast that the program adds may change
 * the value, and a macro of the program's own may have the name of another type. */
unsigned bytes_of_datatype(const Expr *expression, const ASTContext &context)
{
    const SourceManager &sources = context.getSourceManager();
    const Expr *leaf = expression->IgnoreParenCasts();
    const auto *address = dyn_cast<UnaryOperator>(leaf);
    bool is_address = address && address->getOpcode() == UO_AddrOf &&
                      isa<DeclRefExpr>(address->getSubExpr()->IgnoreParens());
    Expr::EvalResult whole, part;
    bool is_same =
        is_address || (isa<IntegerLiteral>(leaf) && expression->EvaluateAsInt(whole, context) &&
                       leaf->EvaluateAsInt(part, context) &&
                       whole.Val.getInt().getExtValue() == part.Val.getInt().getExtValue());
    llvm::StringRef found;
    for (SourceLocation at = leaf->getBeginLoc(); at.isMacroID() && found.empty();
         at = sources.getImmediateMacroCallerLoc(at)) {
        llvm::StringRef name = Lexer::getImmediateMacroName(at, sources, context.getLangOpts());
        found = has_prefix(name, "MPI_") ? name : found;
    }
    if (const auto *named = dyn_cast<DeclRefExpr>(leaf)) { /* an enumerator, or a variable */
        const ValueDecl *declared = named->getDecl();
        found = declared->getIdentifier() ? declared->getName() : found;
        is_same = declared->getDeclContext()->getRedeclContext()->isTranslationUnit();
    }
    for (const mpi_type &type : mpi_types) {
        if (is_same && found == type.name) {
            return type.bytes;
        }
    }
    return 0;
}

bool is_global(const FunctionDecl *f)
{
    const DeclContext *in = f->getDeclContext()->getRedeclContext();
    return f->getIdentifier() && (in->isTranslationUnit() || in->isStdNamespace()) &&
           !has_other_label(f);
}

const char *differs_at_first(const Stmt *value, const ASTContext &context)
{
    const auto *expression = dyn_cast<Expr>(value);
    const auto *cast = dyn_cast<CastExpr>(value);
    if (cast && cast->getCastKind() == CK_PointerToIntegral) {
        return "is an address";
    }
    if (expression && is_named(expression, "MPI_COMM_SELF", context)) {
        return "is MPI_COMM_SELF";
    }
    const char *found = nullptr;
    for (const Stmt *part : value->children()) {
        found = found || !part ? found : differs_at_first(part, context);
    }
    return found;
}

function::function(const FunctionDecl *definition, size_t number, bool is_entry,
                   surroundings &around)
    : definition(definition), number(number), is_entry(is_entry), around(around)
{
}

function::~function() = default;

void function::prepare()
{
    cfg = CFG::buildCFG(definition, definition->getBody(), &definition->getASTContext(),
                        graph_options());
    if (is_entry && definition->isMain() && definition->getNumParams() > 1) {
        argv = definition->getParamDecl(1);
    }
    bool catches = false; /* kernels have no exceptions, so the graph has none, either */
    each_statement(definition->getBody(), nullptr, [&](const Stmt *statement, const Stmt *) {
        catches = catches || isa<CXXTryStmt>(statement);
    });
    each_hidden_size(definition, [&](const Expr *size) {
        cfg.reset();
        each_statement(size, nullptr, [&](const Stmt *part, const Stmt *) {
            const auto *name = dyn_cast<DeclRefExpr>(part);
            if (const auto *variable = name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr) {
                escape(variable, name);
            }
        });
    });
    if (catches) {
        cfg.reset();
    }
    find_escapes(definition->getBody());
    find_parallel(definition->getBody(), nullptr);
    if (!cfg) {
        return;
    }
    find_ends();
    early_exits.resize(cfg->getNumBlockIDs());
    blocks = std::make_unique<control_graph>(*cfg, ends, early_exits);
    find_variables();
    branches.resize(cfg->getNumBlockIDs());
    events.resize(cfg->getNumBlockIDs());
    numbered.resize(cfg->getNumBlockIDs());
    for (const CFGBlock *block : *cfg) {
        numbered[block->getBlockID()] = block;
    }
    at_end.resize(cfg->getNumBlockIDs());
    for (state &s : at_end) {
        s.variables.resize(variables.size());
        s.nulls.resize(variables.size());
    }
}

/* ---- variables ------------------------------------------------------------------------------ */

/* Number the variables of this call that are followed through the function. */
void function::find_variables()
{
    auto add = [this](const VarDecl *variable) {
        if (variable->hasLocalStorage() && is_followed(variable) && !escaped.count(variable)) {
            variables.try_emplace(variable, variables.size());
        }
    };
    for (const ParmVarDecl *parameter : definition->parameters()) {
        add(parameter);
    }
    for (const CFGBlock *block : *cfg) {
        for (const CFGElement &element : *block) {
            auto statement = element.getAs<CFGStmt>();
            const auto *declaration =
                statement ? dyn_cast<DeclStmt>(statement->getStmt()) : nullptr;
            if (!declaration) {
                continue;
            }
            for (const Decl *declared : declaration->decls()) {
                if (const auto *variable = dyn_cast<VarDecl>(declared)) {
                    add(variable);
                }
            }
        }
    }
}

/* Mark the variable: it may change by other ways than by its name. */
void function::escape(const VarDecl *variable, const Expr *where)
{
    variable = variable->getCanonicalDecl();
    const cause *why = explain(variable, false, where->getBeginLoc(),
                               "the address of " + variable->getNameAsString() + " is taken");
    if (variable->hasGlobalStorage()) {
        around.share_global(variable, why);
    } else {
        escaped.try_emplace(variable, why);
    }
    if (variable == argv) {
        argv = nullptr;
    }
}

/* An element of main's argv, as an argument or as a string that is read. */
bool function::reads_argv(const Expr *argument) const
{
    const auto *element = dyn_cast<ArraySubscriptExpr>(argument->IgnoreParenCasts());
    return element && argv && variable_of(element->getBase()->IgnoreParenCasts()) == argv;
}

/* The function gets a pointer to const there. */
bool is_for_reading(const FunctionDecl *called, unsigned argument)
{
    if (argument >= called->getNumParams()) {
        return false;
    }
    QualType type = called->getParamDecl(argument)->getType();
    return type->isPointerType() && type->getPointeeType().isConstQualified();
}

/* The call sets variables through their addresses, in a way that the analysis follows, and keeps
 * no address. Looks for escapes in the other arguments. */
bool function::escapes_nowhere(const CallExpr *call)
{
    const FunctionDecl *called = call->getDirectCallee();
    const library_function *known = called && is_global(called) && !around.find(called)
                                        ? find_library_function(called->getName())
                                        : nullptr;
    if (!known) {
        return false;
    }
    /* MPI does not write to what it gets by a pointer to const. MPI_Get_address() makes a number of
     * the pointer, which a datatype can turn into a place to write to. */
    bool is_mpi = has_prefix(called->getName(), "MPI_") && !has_suffix(called->getName(), "ddress");
    /* strtol() and its like may set a pointer into the string, through which it can change. */
    bool points = has_prefix(llvm::StringRef(known->name), "strto") && call->getNumArgs() > 1 &&
                  !call->getArg(1)->isNullPointerConstant(definition->getASTContext(),
                                                          Expr::NPC_ValueDependentIsNull);
    for (unsigned i = 0; i < call->getNumArgs(); i++) {
        const Expr *argument = call->getArg(i);
        bool sets = variable_pointed_to(argument) &&
                    ((int)i == known->out || (known->effects & KEEPS_ARGV) ||
                     (is_mpi && is_for_reading(called, i)));
        bool reads = reads_argv(argument) && (known->effects & KEEPS_ARGV) && !points;
        if (reads) {
            find_escapes(cast<ArraySubscriptExpr>(argument->IgnoreParenCasts())->getIdx());
        } else if (!sets) {
            find_escapes(argument);
        }
    }
    return true;
}

/* Find the variables that are used by more than loads and assignments of their names. */
void function::find_escapes(const Stmt *statement)
{
    if (!statement || isa<UnaryExprOrTypeTraitExpr>(statement)) {
        return;
    }
    if (const auto *region = dyn_cast<CapturedStmt>(statement)) { /* of an OpenMP directive */
        find_escapes(region->getCapturedStmt());
        return;
    }
    const Expr *direct = nullptr; /* a variable that is only loaded or assigned here */
    if (const auto *cast = dyn_cast<CastExpr>(statement)) {
        direct = cast->getCastKind() == CK_LValueToRValue ? cast->getSubExpr() : nullptr;
    } else if (const auto *binary = dyn_cast<BinaryOperator>(statement)) {
        direct = binary->isAssignmentOp() ? binary->getLHS() : nullptr;
    } else if (const auto *unary = dyn_cast<UnaryOperator>(statement)) {
        direct = unary->isIncrementDecrementOp() ? unary->getSubExpr() : nullptr;
    } else if (const auto *call = dyn_cast<CallExpr>(statement)) {
        if (escapes_nowhere(call)) {
            return;
        }
    } else if (const auto *name = dyn_cast<DeclRefExpr>(statement)) {
        if (const auto *variable = dyn_cast<VarDecl>(name->getDecl())) {
            escape(variable, name);
        }
        return;
    }
    if (direct && argv && isa<ArraySubscriptExpr>(direct->IgnoreParens())) {
        /* argv[i][j] is read: argv[i] is no more than that. */
        const auto *element = cast<ArraySubscriptExpr>(direct->IgnoreParens());
        if (isa<CastExpr>(statement) && reads_argv(element->getBase())) {
            const auto *string = cast<ArraySubscriptExpr>(element->getBase()->IgnoreParenCasts());
            find_escapes(element->getIdx());
            find_escapes(string->getIdx());
            return;
        }
    }
    const VarDecl *variable = direct ? variable_of(direct) : nullptr;
    if (variable && variable != argv) {
        for (const Expr *index : indices_of(direct)) {
            find_escapes(index);
        }
    }
    for (const Stmt *child : statement->children()) {
        if (!variable || variable == argv || child != direct) {
            find_escapes(child);
        }
    }
}

/* Find the statements that several threads of a rank may run, or none. `why`: those of an OpenMP
 * directive, or NULL. */
void function::find_parallel(const Stmt *statement, const cause *why)
{
    if (!statement) {
        return;
    }
    if (isa<OMPExecutableDirective>(statement)) {
        why = explain(statement, false, statement->getBeginLoc(),
                      "the analysis does not follow the threads of OpenMP");
    }
    if (why) {
        parallel.try_emplace(statement, why);
    }
    if (const auto *region = dyn_cast<CapturedStmt>(statement)) { /* it is not its own child */
        find_parallel(region->getCapturedStmt(), why);
    }
    for (const Stmt *child : statement->children()) {
        find_parallel(child, why);
    }
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Find the blocks that end the whole program. */
void function::find_ends()
{
    ends.resize(cfg->getNumBlockIDs());
    for (const CFGBlock *block : *cfg) {
        for (const CFGElement &element : *block) {
            auto statement = element.getAs<CFGStmt>();
            const auto *call = statement ? dyn_cast<CallExpr>(statement->getStmt()) : nullptr;
            const FunctionDecl *called = call ? call->getDirectCallee() : nullptr;
            if (called && is_global(called) && !around.find(called)) {
                if (around.ends_all(call)) {
                    ends.set(block->getBlockID());
                }
            }
        }
    }
}

/* Which threads run the block, of those that entered the function. */
variance function::control(unsigned block) const
{
    variance found;
    for (unsigned branch : blocks->deciders(block)) {
        found.join(branches[branch]);
    }
    return found;
}

/* Returns true if the variance of the block's branch has grown. */
bool function::finish_branch(const CFGBlock &block, const state &now)
{
    unsigned id = block.getBlockID();
    if (blocks->successors(id).size() < 2) {
        return false;
    }
    const Stmt *branch = block.getTerminatorStmt();
    const auto *condition = dyn_cast_or_null<Expr>(block.getTerminatorCondition());
    variance decision;
    if (!condition) {
        decision.why = explain(&block, false, branch ? branch->getBeginLoc() : SourceLocation(),
                               "the analysis does not follow this branch");
    } else {
        decision = truth(condition);
        if (decision.why) {
            decision.why = explain(&block, decision.why->divergent, condition->getBeginLoc(),
                                   "the condition", decision.why);
        }
    }
    return branches[id].join(decision | control(id) | now.left);
}

/* Run the block from the states after its predecessors. Returns true if anything has grown. */
bool function::run_block(const CFGBlock &block, state &scratch)
{
    at = block.getBlockID();
    scratch.left = {};
    scratch.variables.assign(variables.size(), {});
    scratch.nulls.assign(variables.size(), {});
    if (&block == &cfg->getEntry()) {
        for (unsigned i = 0; i < definition->getNumParams() && !is_entry; i++) {
            auto found = variables.find(definition->getParamDecl(i));
            if (found == variables.end()) {
                continue;
            }
            if (i < variance::PARAMETERS) {
                scratch.variables[found->second].parameters |= uint64_t{1} << i;
            } else {
                scratch.variables[found->second].why =
                    explain(found->first, false, found->first->getLocation(),
                            "the function has more than 63 parameters");
            }
            scratch.nulls[found->second] = scratch.variables[found->second];
        }
    }
    for (unsigned before : blocks->predecessors(at)) {
        for (unsigned i = 0; i < variables.size(); i++) {
            scratch.variables[i].join(at_end[before].variables[i]);
            scratch.nulls[i].join(at_end[before].nulls[i]);
        }
        scratch.left.join(at_end[before].left);
    }
    now = &scratch;
    here = control(at);
    events[at].clear();
    const variance of_block = here;
    for (const CFGElement &element : block) {
        if (auto statement = element.getAs<CFGStmt>()) {
            auto thread = parallel.find(statement->getStmt());
            here = of_block | variance{0, thread == parallel.end() ? nullptr : thread->second};
            run(statement->getStmt());
        } else if (auto destructor = element.getAs<CFGImplicitDtor>()) {
            const CXXDestructorDecl *called =
                destructor->getDestructorDecl(definition->getASTContext());
            if (called && !called->isTrivial()) {
                now->left.join({0, explain(called, false, called->getLocation(),
                                           "the analysis does not follow destructors")});
                note_early_exit();
            }
        }
    }
    bool grows = finish_branch(block, scratch);
    for (unsigned i = 0; i < variables.size(); i++) {
        grows |= at_end[at].variables[i].join(scratch.variables[i]);
        grows |= at_end[at].nulls[i].join(scratch.nulls[i]);
    }
    grows |= at_end[at].left.join(scratch.left);
    return grows;
}

/* Assume that all calls in the statement are made by some threads, and that all variables which it
 * names vary. */
void function::give_up(const Stmt *statement, const cause *why)
{
    const auto *name = dyn_cast<DeclRefExpr>(statement);
    const auto *variable = name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
    const auto *called = name ? dyn_cast<FunctionDecl>(name->getDecl()) : nullptr;
    if (variable && variable->hasGlobalStorage()) {
        around.share_global(variable, why);
    } else if (function *callee = called ? around.find(called) : nullptr) {
        call_site site;
        site.expression = name;
        site.callee = callee;
        site.reached.why = site.alone.why = why;
        site.arguments.resize(called->getNumParams(), {0, why});
        sites.push_back(std::move(site));
    }
    const auto *call = dyn_cast<CallExpr>(statement);
    const FunctionDecl *direct = call ? call->getDirectCallee() : nullptr;
    const allocation_function *allocates = direct && is_global(direct) && !around.find(direct)
                                               ? find_allocation_function(direct->getName())
                                               : nullptr;
    if (allocates) {
        call_site site;
        site.expression = call;
        site.allocates = allocates;
        site.reached.why = site.size.why = site.alone.why = why;
        sites.push_back(std::move(site));
    }
    for (const Stmt *child : statement->children()) {
        if (child) {
            give_up(child, why);
        }
    }
}

bool function::analyse()
{
    summary before = found;
    if (!prepared) {
        prepared = true;
        prepare();
    }
    if (!cfg) {
        found.result.why = found.null.why =
            explain(definition, false, definition->getLocation(),
                    "the analysis has no control flow of this function");
        found.may_leave = true;
        found.leaves.why = found.result.why;
        sites.clear();
        give_up(definition->getBody(), found.result.why);
        around.call_unknown(found.result.why);
    } else {
        state scratch;
        bool grows = true;
        while (grows) {
            grows = found_early_exit = false;
            sites.clear();
            for (unsigned id : blocks->order()) {
                grows |= run_block(*numbered[id], scratch);
            }
            if (found_early_exit) { /* fewer blocks are doomed, so that more branches decide */
                blocks = std::make_unique<control_graph>(*cfg, ends, early_exits);
                grows = true;
            }
        }
    }
    bool grows = found.may_leave != before.may_leave || found.may_meet != before.may_meet;
    grows |= before.meets.join(found.meets);
    grows |= before.result.join(found.result);
    grows |= before.null.join(found.null);
    grows |= before.leaves.join(found.leaves);
    return grows;
}

} // namespace rewrite
