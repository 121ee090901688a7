/* SPDX-License-Identifier: MIT */
#include "port.h"

#include "program.h"
#include "walk.h"

#include <clang/AST/Attr.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Lexer.h>
#include <llvm/ADT/StringExtras.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

using namespace clang;
using llvm::dyn_cast;
using llvm::isa;

namespace rewrite
{
namespace
{

const char MAIN[] = "gpualloc_main";

/* Call visit(statement) for each statement and expression, also in the operands of sizeof. */
template <typename Visit> void each_part(const Stmt *statement, const Visit &visit)
{
    if (!statement) {
        return;
    }
    visit(statement);
    for (const Stmt *child : statement->children()) {
        each_part(child, visit);
    }
}

/* A name in an expression. */
using visit_name = std::function<void(const DeclRefExpr *)>;

/* Call visit() for the names in a declaration: in the lengths of arrays, in enumerators, in bodies
 * of functions and in constants. */
void each_name(const Decl *d, const visit_name &visit);

void each_name(const Stmt *part, const visit_name &visit)
{
    each_part(part, [&](const Stmt *inner) {
        if (const auto *name = dyn_cast<DeclRefExpr>(inner)) {
            visit(name);
        } else if (const auto *statement = dyn_cast<DeclStmt>(inner)) {
            for (const Decl *d : statement->decls()) {
                each_name(d, visit);
            }
        }
    });
}

bool is_constant(const VarDecl *v)
{
    return v->getASTContext().getBaseElementType(v->getType()).isConstQualified();
}

void each_name(const Decl *d, const visit_name &visit)
{
    if (const auto *declarator = dyn_cast<DeclaratorDecl>(d)) {
        const TypeSourceInfo *type = declarator->getTypeSourceInfo();
        for (TypeLoc t = type ? type->getTypeLoc() : TypeLoc(); !t.isNull();
             t = t.getNextTypeLoc()) {
            if (auto array = t.getAs<ArrayTypeLoc>()) {
                each_name(array.getSizeExpr(), visit);
            }
        }
    }
    if (const auto *v = dyn_cast<VarDecl>(d)) {
        if (v->hasGlobalStorage() && is_constant(v)) {
            each_name(v->getInit(), visit);
        }
    } else if (const auto *field = dyn_cast<FieldDecl>(d)) {
        each_name(field->getBitWidth(), visit);
    } else if (const auto *enumerator = dyn_cast<EnumConstantDecl>(d)) {
        each_name(enumerator->getInitExpr(), visit);
    } else if (const auto *f = dyn_cast<FunctionDecl>(d)) {
        each_name(f->doesThisDeclarationHaveABody() ? f->getBody() : nullptr, visit);
    } else if (const auto *tag = dyn_cast<TagDecl>(d)) {
        for (const Decl *inner : tag->decls()) {
            each_name(inner, visit);
        }
    }
}

/* A variable with static storage that can change; NULL if the name is another's. */
const VarDecl *changing_variable(const DeclRefExpr *name)
{
    const auto *v = dyn_cast<VarDecl>(name->getDecl());
    return v && v->hasGlobalStorage() && !is_constant(v) ? v : nullptr;
}

/* ---- one file -------------------------------------------------------------------------------- */

class file_port
{
  public:
    file_port(collector &to, program &all, ASTContext &context, std::vector<not_ported> &undone)
        : to(to), all(all), context(context), sources(context.getSourceManager()), undone(undone)
    {
    }

    void run();

  private:
    /* Variables that are declared together, as in `static int a, *b;`. */
    struct declaration {
        std::vector<const VarDecl *> variables;
        const FunctionDecl *in = nullptr;
    };

    void look_at_function(const FunctionDecl *f);
    void look_at_body(const FunctionDecl *f);
    void look_at_call(const FunctionDecl *in, const CallExpr *call);
    void add_variable(const VarDecl *v, const FunctionDecl *in);
    void port_main(const FunctionDecl *f);
    void port_variables();
    std::string declare(const VarDecl *v, const std::string &name) const;
    std::string initial_text(const VarDecl *v) const;
    const char *obstacle_to_type(const VarDecl *v) const;
    const char *obstacle_to(const VarDecl *v) const;
    const VarDecl *variable_in(const Stmt *value) const;
    std::string declare_all(const declaration &of, SourceLocation begin, SourceLocation end);
    bool has_obstacle(const declaration &of, SourceLocation begin, SourceLocation end);
    void note_meaning(const DeclRefExpr *name);
    void refer(const DeclRefExpr *name);
    void add_number_casts(const CallExpr *call);
    void look_at_sizeof(const UnaryExprOrTypeTraitExpr *operation);
    bool is_ours(SourceLocation location) const
    {
        return !obstacle_at(location, sources, all.folder());
    }
    void leave(SourceLocation at, std::string what);

    collector &to;
    program &all;
    ASTContext &context;
    const SourceManager &sources;
    std::vector<not_ported> &undone;
    std::map<std::pair<FileID, unsigned>, declaration> declarations; /* by where they begin */
    std::set<const VarDecl *> each_rank;                             /* canonical */
    std::map<const VarDecl *, std::string> names;                    /* of these */
    std::set<std::string> taken;                                     /* of hoisted variables */
    std::map<SourceLocation, std::set<const Decl *>> meanings; /* of names in macros, as spelled */
    std::map<const FunctionDecl *, std::string> before; /* a function: its static variables */
};

void file_port::leave(SourceLocation at, std::string what)
{
    undone.push_back({place_of(sources, at), std::move(what)});
}

/* ---- functions ------------------------------------------------------------------------------- */

void file_port::look_at_function(const FunctionDecl *f)
{
    if (!all.has(f) || !is_ours(f->getBeginLoc())) {
        if (all.has(f) && is_in_project(f->getBeginLoc(), sources, all.folder())) {
            leave(f->getLocation(), "a macro declares " + f->getNameAsString() + "()");
        }
        return;
    }
    if (f->getNumParams() && !f->hasWrittenPrototype()) {
        leave(f->getLocation(), f->getNameAsString() + "() is in the style before ANSI C");
    }
    if (f->isVariadic()) {
        leave(f->getLocation(), f->getNameAsString() +
                                    "() has a variable number of arguments, which CUDA does not "
                                    "have in kernels");
    }
    to.add(change::DEVICE, sources, f->getBeginLoc(), 0, "__device__ ");
    if (f->isMain()) {
        port_main(f);
    }
    if (f->doesThisDeclarationHaveABody()) {
        look_at_body(f);
    }
}

void file_port::port_main(const FunctionDecl *f)
{
    if (const char *why = obstacle_to_token(f->getLocation(), "main", context, all.folder())) {
        leave(f->getLocation(), std::string("main() needs another name, but ") + why);
        return;
    }
    to.add(change::NAME, sources, f->getLocation(), sizeof "main" - 1, MAIN);
    const auto *body = dyn_cast_or_null<CompoundStmt>(f->getBody());
    if (!body || !f->doesThisDeclarationHaveABody()) {
        return;
    }
    if (const char *why = obstacle_to_token(body->getRBracLoc(), "}", context, all.folder())) {
        leave(body->getRBracLoc(), std::string("main() needs a last return, but ") + why);
        return;
    }
    if (body->body_empty() || !isa<ReturnStmt>(body->body_back())) {
        to.add(change::RETURN, sources, body->getRBracLoc(), 0, "  return 0;\n");
    }
    FileID file = sources.getFileID(f->getLocation());
    llvm::StringRef text = sources.getBufferData(file);
    to.add(change::PROGRAM, sources,
           sources.getLocForStartOfFile(file).getLocWithOffset((int)text.size()), 0,
           std::string(has_suffix(text, "\n") ? "\n" : "\n\n") + "GA_MPI_PROGRAM(" + MAIN + ")\n");
}

void file_port::look_at_call(const FunctionDecl *in, const CallExpr *call)
{
    const FunctionDecl *called = call->getDirectCallee();
    if (!called || !called->getIdentifier()) {
        return;
    }
    if (called->isMain()) {
        leave(call->getBeginLoc(), "main() is called");
    } else if (!all.has(called) && !is_available(called->getName()) &&
               !has_prefix(called->getName(), "__builtin_")) {
        leave(call->getBeginLoc(), called->getNameAsString() + "(), which " +
                                       in->getNameAsString() +
                                       "() calls, has no version for kernels");
    } else if (!all.has(called) && is_numeric(called->getName())) {
        add_number_casts(call);
    }
}

/* C converts the arguments of sqrt() and abs(). C++ chooses another function by their types. */
void file_port::add_number_casts(const CallExpr *call)
{
    for (const Expr *argument : call->arguments()) {
        const auto *cast = dyn_cast<ImplicitCastExpr>(argument);
        bool converts = cast && (cast->getCastKind() == CK_FloatingCast ||
                                 cast->getCastKind() == CK_IntegralToFloating ||
                                 cast->getCastKind() == CK_FloatingToIntegral ||
                                 cast->getCastKind() == CK_IntegralCast);
        SourceLocation end =
            Lexer::getLocForEndOfToken(argument->getEndLoc(), 0, sources, context.getLangOpts());
        if (converts && !(is_ours(argument->getBeginLoc()) && is_ours(end))) {
            leave(argument->getBeginLoc(),
                  "C++ may choose a function for another type of number, but a cast cannot be "
                  "written here: it is in a macro");
        } else if (converts) {
            to.add(change::CAST, sources, argument->getBeginLoc(), 0,
                   "(" + argument->getType().getAsString(context.getPrintingPolicy()) + ")(");
            to.add(change::CLOSE, sources, end, 0, ")");
        }
    }
}

void file_port::look_at_sizeof(const UnaryExprOrTypeTraitExpr *operation)
{
    const Expr *of = operation->isArgumentType() || operation->getKind() != UETT_SizeOf
                         ? nullptr
                         : operation->getArgumentExpr()->IgnoreParens();
    const auto *binary = dyn_cast_or_null<BinaryOperator>(of);
    const auto *unary = dyn_cast_or_null<UnaryOperator>(of);
    if (dyn_cast_or_null<CharacterLiteral>(of) ||
        (binary && (binary->isComparisonOp() || binary->isLogicalOp())) ||
        (unary && unary->getOpcode() == UO_LNot)) {
        leave(operation->getBeginLoc(), "C++ has another type, and so another size, for this");
    }
}

void file_port::look_at_body(const FunctionDecl *f)
{
    std::set<const Stmt *> callees;
    each_part(f->getBody(), [&](const Stmt *part) {
        if (const auto *call = dyn_cast<CallExpr>(part)) {
            look_at_call(f, call);
            callees.insert(call->getCallee()->IgnoreParenImpCasts());
        } else if (const auto *name = dyn_cast<DeclRefExpr>(part)) {
            const auto *other = dyn_cast<FunctionDecl>(name->getDecl());
            if (other && !all.has(other) && !callees.count(name)) {
                leave(name->getLocation(), "the address of " + other->getNameAsString() +
                                               "() is that of the host's function");
            }
        } else if (const auto *operation = dyn_cast<UnaryExprOrTypeTraitExpr>(part)) {
            look_at_sizeof(operation);
        } else if (const auto *statement = dyn_cast<DeclStmt>(part)) {
            for (const Decl *d : statement->decls()) {
                const auto *v = dyn_cast<VarDecl>(d);
                if (v && v->hasGlobalStorage()) {
                    add_variable(v, f);
                } else if (v && v->getType()->isVariableArrayType()) {
                    leave(v->getLocation(), v->getNameAsString() +
                                                " has a variable length, which CUDA does not have");
                }
            }
        }
    });
}

/* ---- variables ------------------------------------------------------------------------------- */

void file_port::add_variable(const VarDecl *v, const FunctionDecl *in)
{
    if (!is_in_project(v->getLocation(), sources, all.folder())) {
        return;
    }
    if (!is_ours(v->getBeginLoc())) {
        leave(v->getLocation(), "a macro declares " + v->getNameAsString());
        return;
    }
    if (is_constant(v)) {
        if (const VarDecl *other = variable_in(v->getInit())) {
            leave(v->getLocation(), v->getNameAsString() + " is for all ranks, but has " +
                                        other->getNameAsString() + ", which is each rank's");
        }
        to.add(change::DEVICE, sources, v->getBeginLoc(), 0, "__device__ ");
        return;
    }
    std::string name = v->getNameAsString();
    if (in && !v->hasExternalStorage()) { /* it is hoisted: the function's name comes first */
        name = in->getNameAsString() + "_" + name;
        while (!taken.insert(name).second) {
            name += "_";
        }
    }
    names.emplace(v->getCanonicalDecl(), name);
    declaration &d = declarations[sources.getDecomposedLoc(v->getBeginLoc())];
    d.variables.push_back(v);
    d.in = in;
}

/* A variable of each rank that the value has, other than in sizeof. */
const VarDecl *file_port::variable_in(const Stmt *value) const
{
    const VarDecl *found = nullptr;
    each_statement(value, nullptr, [&](const Stmt *part, const Stmt *) {
        const auto *name = dyn_cast<DeclRefExpr>(part);
        found = name && changing_variable(name) ? changing_variable(name) : found;
    });
    return found;
}

const char *file_port::obstacle_to_type(const VarDecl *v) const
{
    QualType type = context.getBaseElementType(v->getType());
    const TagDecl *tag = type->getAsTagDecl();
    const auto *alias = type->getAs<TypedefType>();
    const auto *record = type->getAs<RecordType>();
    std::string spelled = v->getType().getAsString(context.getPrintingPolicy());
    if (spelled.find("(unnamed") != std::string::npos ||
        spelled.find("(anonymous") != std::string::npos) {
        return "its type has no name";
    }
    if (!v->hasExternalStorage() &&
        ((tag && isa<FunctionDecl>(tag->getDeclContext())) ||
         (alias && isa<FunctionDecl>(alias->getDecl()->getDeclContext())))) {
        return "its type is known in its function alone";
    }
    if (v->getType()->isIncompleteType() ||
        (record && record->getDecl()->hasFlexibleArrayMember())) {
        return "its size is not known here";
    }
    return v->hasAttr<AlignedAttr>() || context.getTypeAlign(type) > 128
               ? "it has an alignment of its own"
               : nullptr;
}

const char *file_port::obstacle_to(const VarDecl *v) const
{
    if (const char *why = obstacle_to_type(v)) {
        return why;
    }
    if (v->getInit() && initial_text(v).empty()) {
        return "a macro has its initial value";
    }
    bool refers = false;
    visit_name look = [&](const DeclRefExpr *name) {
        const auto *enumerator = dyn_cast<EnumConstantDecl>(name->getDecl());
        refers = refers || changing_variable(name) ||
                 (enumerator && enumerator->getParentFunctionOrMethod());
    };
    const TagDecl *tag = context.getBaseElementType(v->getType())->getAsTagDecl();
    each_name(v->getInit(), look);
    each_name(v, look);
    if (tag && tag->isEmbeddedInDeclarator()) {
        each_name(tag, look);
    }
    if (v->getStorageClass() == SC_Static && !v->isStaticLocal() && v->getDefinition() &&
        v->getDefinition() != v) {
        return "it is declared before its definition";
    }
    return refers ? "its declaration has another variable, or a name of its function" : nullptr;
}

std::string file_port::initial_text(const VarDecl *v) const
{
    return Lexer::getSourceText(CharSourceRange::getTokenRange(v->getInit()->getSourceRange()),
                                sources, context.getLangOpts())
        .str();
}

/* "" for a second tentative definition of a static variable: C++ has none. */
std::string file_port::declare(const VarDecl *v, const std::string &name) const
{
    PrintingPolicy policy(context.getLangOpts());
    policy.Bool = true;
    bool is_definition = v->isThisDeclarationADefinition() == VarDecl::Definition ||
                         (!v->getDefinition() && v->getActingDefinition() == v) ||
                         v->isStaticLocal();
    bool is_static = v->getStorageClass() == SC_Static;
    const char *storage = is_static ? "static " : is_definition ? "" : "extern ";
    std::string text = std::string(storage) + "__device__ ga_mpi_global<" +
                       v->getType().getAsString(policy) + "> " + name;
    if (!is_definition) {
        return is_static ? "" : text + ";";
    }
    std::string value = v->getInit() ? initial_text(v) : "";
    if (v->getInit() && v->getType()->isScalarType() &&
        !context.hasSameUnqualifiedType(v->getType(), v->getInit()->IgnoreImpCasts()->getType())) {
        /* in braces C++ refuses to narrow */
        value = "(" + v->getType().getAsString(policy) + ")(" + value + ")";
    }
    return text + " = {" + value + "};\nGA_MPI_EACH_RANK(" + name + ")";
}

/* Report why the variables cannot be those of each rank. */
bool file_port::has_obstacle(const declaration &of, SourceLocation begin, SourceLocation end)
{
    bool found = false;
    const char *whole = end.isInvalid() ? "its declaration is too complex"
                                        : obstacle_to_range(begin, end, context, all.folder());
    for (const VarDecl *v : of.variables) {
        const char *why = whole ? whole : obstacle_to(v);
        if (why) {
            leave(v->getLocation(),
                  "each rank needs its own " + v->getNameAsString() + ", but " + why);
            found = true;
        }
    }
    return found;
}

/* The new declarations, with that of a type that the old one contains. */
std::string file_port::declare_all(const declaration &of, SourceLocation begin, SourceLocation end)
{
    std::string text;
    const VarDecl *first = of.variables.front();
    const TagDecl *tag = context.getBaseElementType(first->getType())->getAsTagDecl();
    if (tag && tag->isEmbeddedInDeclarator() && tag->isThisDeclarationADefinition() &&
        sources.isPointWithin(tag->getBeginLoc(), begin, end)) {
        text = Lexer::getSourceText(CharSourceRange::getTokenRange(tag->getSourceRange()), sources,
                                    context.getLangOpts())
                   .str() +
               ";";
    }
    for (const VarDecl *v : of.variables) {
        std::string next = declare(v, names[v->getCanonicalDecl()]);
        text += text.empty() || next.empty() ? next : "\n" + next;
    }
    return text;
}

void file_port::port_variables()
{
    for (auto &[where, d] : declarations) {
        SourceLocation begin = d.variables.front()->getBeginLoc();
        SourceLocation end = Lexer::findLocationAfterToken(
            d.variables.back()->getEndLoc(), tok::semi, sources, context.getLangOpts(), false);
        if (has_obstacle(d, begin, end)) {
            continue;
        }
        std::string text = declare_all(d, begin, end);
        for (const VarDecl *v : d.variables) {
            each_rank.insert(v->getCanonicalDecl());
        }
        if (d.in && !d.variables.front()->hasExternalStorage()) {
            before[d.in] += text + "\n";
            text = ";";
        }
        to.add(change::VARIABLE, sources, begin, sources.getFileOffset(end) - where.second, text);
    }
    for (const auto &[f, text] : before) {
        to.add(change::VARIABLE, sources, f->getBeginLoc(), 0, text);
    }
}

/* A name in a macro's definition or argument may be expanded several times. */
void file_port::note_meaning(const DeclRefExpr *name)
{
    if (name->getLocation().isMacroID()) {
        meanings[sources.getSpellingLoc(name->getLocation())].insert(
            name->getDecl()->getCanonicalDecl());
    }
}

/* The rank's own variable, in the place of all ranks'. */
void file_port::refer(const DeclRefExpr *name)
{
    const auto *v = dyn_cast<VarDecl>(name->getDecl());
    if (!v || !each_rank.count(v->getCanonicalDecl())) {
        return;
    }
    SourceLocation at = sources.getSpellingLoc(name->getLocation());
    if (meanings[at].size() > 1) {
        leave(name->getBeginLoc(), "a macro names " + v->getNameAsString() +
                                       ", which is each rank's, and elsewhere another variable");
        return;
    }
    if (obstacle_to_token(at, v->getName(), context, all.folder())) {
        leave(name->getBeginLoc(),
              "a macro names " + v->getNameAsString() + ", which is each rank's");
        return;
    }
    SourceLocation end = Lexer::getLocForEndOfToken(at, 0, sources, context.getLangOpts());
    const std::string &whole = names[v->getCanonicalDecl()];
    if (whole != v->getNameAsString()) {
        to.add(change::NAME, sources, at, (unsigned)v->getNameAsString().size(), whole);
    }
    to.add(change::OWN, sources, end, 0, ".own()");
}

/* ---- the whole file -------------------------------------------------------------------------- */

void file_port::run()
{
    each_declaration(
        context.getTranslationUnitDecl(), [&](const FunctionDecl *f) { look_at_function(f); },
        [&](const VarDecl *v) { add_variable(v, nullptr); });
    port_variables();
    for (const Decl *d : context.getTranslationUnitDecl()->decls()) {
        each_name(d, [&](const DeclRefExpr *name) { note_meaning(name); });
    }
    for (const Decl *d : context.getTranslationUnitDecl()->decls()) {
        each_name(d, [&](const DeclRefExpr *name) { refer(name); });
    }
    include_header(to, context, all.folder());
}

} // namespace

std::vector<not_ported> add_port(collector &to, program &all,
                                 const std::vector<ASTContext *> &files)
{
    std::vector<not_ported> undone;
    bool has_main = false;
    for (ASTContext *context : files) {
        file_port(to, all, *context, undone).run();
        for (const Decl *d : context->getTranslationUnitDecl()->decls()) {
            const auto *f = dyn_cast<FunctionDecl>(d);
            if (f && f->isMain() && f->doesThisDeclarationHaveABody()) {
                if (has_main) {
                    undone.push_back({place_of(context->getSourceManager(), f->getLocation()),
                                      "another file has main(), too"});
                }
                has_main = true;
            }
        }
    }
    std::sort(undone.begin(), undone.end());
    undone.erase(std::unique(undone.begin(), undone.end()), undone.end());
    return undone;
}

} // namespace rewrite
