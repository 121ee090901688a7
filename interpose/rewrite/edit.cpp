/* SPDX-License-Identifier: MIT */
#include "edit.h"

#include "program.h"
#include "walk.h"

#include <clang/AST/ASTContext.h>
#include <clang/AST/TypeLoc.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Lexer.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/Path.h>

#include <algorithm>
#include <set>

using namespace clang;
using llvm::dyn_cast;
using llvm::isa;

namespace rewrite
{
namespace
{

FunctionTypeLoc type_of(const FunctionDecl *declaration)
{
    const TypeSourceInfo *type = declaration->getTypeSourceInfo();
    return type ? type->getTypeLoc().IgnoreParens().getAs<FunctionTypeLoc>() : FunctionTypeLoc();
}

/* The parenthesis behind the name of the function that is called. Not valid if another token is
 * there. */
SourceLocation left_parenthesis(const CallExpr *call, const ASTContext &context)
{
    const SourceManager &sources = context.getSourceManager();
    SourceLocation end = call->getCallee()->getEndLoc();
    end = end.isMacroID() ? sources.getExpansionRange(end).getEnd() : end;
    SourceLocation behind = behind_token(end, context), right = call->getRParenLoc();
    if (behind.isInvalid() || right.isMacroID() ||
        sources.getFileID(behind) != sources.getFileID(right)) {
        return SourceLocation();
    }
    std::vector<Token> found = tokens_between(behind, right, context);
    return !found.empty() && found[0].is(tok::l_paren) ? found[0].getLocation() : SourceLocation();
}

/* ---- arguments and parameters ---------------------------------------------------------------- */

void add_argument(collector &to, const decision &d)
{
    const auto *call = dyn_cast<CallExpr>(d.site->expression);
    const SourceManager &sources = d.in->definition->getASTContext().getSourceManager();
    if (!call || has_argument(call)) {
        return;
    }
    std::string text = d.gets == flag::always ? "true" : "coalesce";
    to.add(change::ARGUMENT, sources, call->getRParenLoc(), 0,
           (call->getNumArgs() ? ", " : "") + text);
}

void add_parameter(collector &to, const FunctionDecl *declaration)
{
    const SourceManager &sources = declaration->getASTContext().getSourceManager();
    FunctionTypeLoc type = type_of(declaration);
    std::string text = declaration->isFirstDecl() ? "bool coalesce = false" : "bool coalesce";
    if (has_coalesce(declaration)) {
        return;
    }
    if (declaration->getNumParams()) {
        to.add(change::PARAMETER, sources, type.getRParenLoc(), 0, ", " + text);
        return;
    }
    SourceLocation begin = type.getLParenLoc().getLocWithOffset(1);
    std::vector<Token> inner =
        tokens_between(begin, type.getRParenLoc(), declaration->getASTContext());
    to.add(change::PARAMETER, sources, inner.empty() ? begin : inner[0].getLocation(),
           inner.empty() ? 0 : sizeof "void" - 1, text);
}

/* ---- the ends of an entry -------------------------------------------------------------------- */

/* The statement is a call of that function of the library. */
bool calls(const Stmt *statement, llvm::StringRef name)
{
    const auto *call = dyn_cast<CallExpr>(statement);
    const FunctionDecl *called = call ? call->getDirectCallee() : nullptr;
    return called && called->getIdentifier() && called->getName() == name;
}

/* The function calls another one to compute the value. */
bool has_call(const Stmt *part)
{
    bool found = false;
    each_statement(part, nullptr,
                   [&](const Stmt *inner, const Stmt *) { found = found || isa<CallExpr>(inner); });
    return found;
}

bool has_comma(const Expr *result)
{
    const auto *binary = dyn_cast<BinaryOperator>(result->IgnoreImpCasts());
    return binary && binary->isCommaOp();
}

/* A new line with the indentation of the statement, if that begins its line. */
std::string space_before(SourceLocation begin, const SourceManager &sources)
{
    llvm::StringRef text = sources.getBufferData(sources.getFileID(begin));
    llvm::StringRef before = text.take_front(sources.getFileOffset(begin));
    llvm::StringRef indentation = before.drop_front(before.find_last_of('\n') + 1);
    return indentation.trim().empty() ? "\n" + indentation.str() : " ";
}

/* The statement is one of its own, and no part of an expression or of the head of a loop. */
bool is_substatement(const Stmt *statement, const Stmt *parent)
{
    if (const auto *loop = dyn_cast<ForStmt>(parent)) {
        return loop->getBody() == statement;
    }
    return !isa<Expr>(parent) && !isa<DeclStmt>(parent) && !isa<ReturnStmt>(parent);
}

/* The statement before this one in its block is a call of clean_malloc(). */
bool is_after_cleaning(const Stmt *statement, const Stmt *parent)
{
    const auto *block = dyn_cast<CompoundStmt>(parent);
    if (!block) {
        return false;
    }
    const Stmt *before = nullptr;
    for (const Stmt *other : block->body()) {
        if (other == statement) {
            break;
        }
        before = other;
    }
    return before && calls(before, "clean_malloc");
}

/* Why clean_malloc() cannot be called before the statement, which ends by `semicolon`. */
const char *obstacle_to_cleaning(const ASTContext &context, const std::string &project,
                                 const Stmt *statement, const Stmt *parent, SourceLocation behind)
{
    const auto *leaves = dyn_cast<ReturnStmt>(statement);
    SourceLocation begin = statement->getBeginLoc();
    if (const char *found =
            obstacle_to_token(begin, leaves ? "return" : "exit", context, project)) {
        return found;
    }
    if (!is_substatement(statement, parent)) {
        return "it is within an expression";
    }
    const Expr *result = leaves ? leaves->getRetValue() : nullptr;
    if (has_call(result) && has_comma(result)) {
        for (SourceLocation at : {result->getBeginLoc(), result->getEndLoc()}) {
            if (const char *found = obstacle_at(at, context.getSourceManager(), project)) {
                return found;
            }
        }
    }
    return behind.isInvalid() ? "its end is in a macro"
                              : obstacle_to_range(begin, behind, context, project);
}

/* Clean up before a statement that leaves the program. A result that calls functions is computed
 * before. */
void finish_before(collector &to, const ASTContext &context, const std::string &project,
                   const Stmt *statement, const Stmt *parent)
{
    const SourceManager &sources = context.getSourceManager();
    const auto *leaves = dyn_cast<ReturnStmt>(statement);
    const Expr *result = leaves ? leaves->getRetValue() : nullptr;
    SourceLocation begin = statement->getBeginLoc();
    SourceLocation end = Lexer::findLocationAfterToken(statement->getEndLoc(), tok::semi, sources,
                                                       context.getLangOpts(), false);
    if (is_after_cleaning(statement, parent)) {
        return;
    }
    if (const char *why = obstacle_to_cleaning(context, project, statement, parent, end)) {
        to.leave(sources, begin, std::string("clean_malloc() cannot come before it: ") + why);
        return;
    }
    if (has_call(result)) {
        bool has_value = !result->getType()->isVoidType();
        if (has_comma(result)) { /* f(), 0 is no initial value */
            to.add(change::BEGIN, sources, result->getBeginLoc(), 0, "(");
            to.add(change::CLOSE, sources, behind_token(result->getEndLoc(), context), 0, ")");
        }
        to.add(change::BEGIN, sources, begin, sizeof "return" - 1,
               has_value ? "{ int gpualloc_result =" : "{");
        to.add(change::CLOSE, sources, end, 0,
               has_value ? " clean_malloc(); return gpualloc_result; }"
                         : " clean_malloc(); return; }");
    } else if (isa<CompoundStmt>(parent)) {
        to.add(change::BEGIN, sources, begin, 0, "clean_malloc();" + space_before(begin, sources));
    } else {
        to.add(change::BEGIN, sources, begin, 0, "{ clean_malloc(); ");
        to.add(change::CLOSE, sources, end, 0, " }");
    }
}

/* The statements that leave main() or a kernel, and exit() in any function. */
void clean_at_ends(collector &to, const std::string &project, const function *f)
{
    const ASTContext &context = f->definition->getASTContext();
    each_statement(f->definition->getBody(), nullptr,
                   [&](const Stmt *statement, const Stmt *parent) {
                       bool leaves = f->is_entry && isa<ReturnStmt>(statement);
                       if (leaves || calls(statement, "exit")) {
                           finish_before(to, context, project, statement, parent);
                       }
                   });
}

/* C converts void * to other pointers, and C++ does not. */
void add_cast(collector &to, const ASTContext &context, const std::string &project,
              const ImplicitCastExpr *cast)
{
    const Expr *from = cast->getSubExpr();
    const SourceManager &sources = context.getSourceManager();
    if (cast->getCastKind() != CK_BitCast || !from->getType()->isVoidPointerType() ||
        cast->getType()->isVoidPointerType() || cast->isPartOfExplicitCast()) {
        return;
    }
    SourceLocation end = behind_token(from->getEndLoc(), context);
    for (SourceLocation at : {from->getBeginLoc(), end}) {
        if (const char *why = obstacle_at(at, sources, project)) {
            to.leave(sources, from->getBeginLoc(),
                     "C++ needs a cast of the pointer, which cannot be written: " +
                         std::string(why));
            return;
        }
    }
    const Expr *inner = from->IgnoreParenImpCasts();
    bool is_primary = from != from->IgnoreParens() || isa<CallExpr>(inner) ||
                      isa<DeclRefExpr>(inner) || isa<MemberExpr>(inner) ||
                      isa<ArraySubscriptExpr>(inner);
    std::string text = "(" + cast->getType().getAsString(context.getPrintingPolicy()) + ")";
    to.add(change::CAST, sources, from->getBeginLoc(), 0, text + (is_primary ? "" : "("));
    if (!is_primary) {
        to.add(change::CLOSE, sources, end, 0, ")");
    }
}

void add_casts(collector &to, const FunctionDecl *f, const std::string &project)
{
    const ASTContext &context = f->getASTContext();
    if (context.getLangOpts().CPlusPlus) {
        return;
    }
    each_statement(f->getBody(), nullptr, [&](const Stmt *statement, const Stmt *) {
        if (const auto *cast = dyn_cast<ImplicitCastExpr>(statement)) {
            add_cast(to, context, project, cast);
        }
    });
}

void frame_entry(collector &to, const std::string &project, const function *entry)
{
    const ASTContext &context = entry->definition->getASTContext();
    const SourceManager &sources = context.getSourceManager();
    const auto *body = dyn_cast<CompoundStmt>(entry->definition->getBody());
    if (!body) {
        return;
    }
    for (auto [at, text] :
         {std::make_pair(body->getLBracLoc(), "{"), std::make_pair(body->getRBracLoc(), "}")}) {
        if (const char *why = obstacle_to_token(at, text, context, project)) {
            to.leave(sources, at,
                     "init_malloc() and clean_malloc() cannot be called here: " + std::string(why));
            return;
        }
    }
    bool begins = std::any_of(body->body_begin(), body->body_end(), [](const Stmt *statement) {
        return calls(statement, "init_malloc");
    });
    if (!begins) {
        to.add(change::BEGIN, sources, body->getLBracLoc().getLocWithOffset(1), 0,
               "\n  init_malloc();");
    }
    const Stmt *last = body->body_empty() ? nullptr : body->body_back();
    if (!last || (!isa<ReturnStmt>(last) && !calls(last, "clean_malloc"))) {
        to.add(change::END, sources, body->getRBracLoc(), 0, "  clean_malloc();\n");
    }
    clean_at_ends(to, project, entry);
}

} // namespace

void collector::add(change::kind what, const SourceManager &sources, SourceLocation at,
                    unsigned length, std::string text)
{
    std::string file = path_of(sources, at);
    if (!parsed.count(file)) {
        parsed[file] = sources.getBufferData(sources.getFileID(at)).str();
    }
    changes.insert({what, std::move(file), sources.getFileOffset(at), length,
                    sources.getSpellingLineNumber(at), sources.getSpellingColumnNumber(at),
                    std::move(text)});
}

void collector::leave(const SourceManager &sources, SourceLocation at, std::string what)
{
    left.emplace(place_of(sources, at), std::move(what));
}

bool collector::changes_before(const std::string &file, unsigned offset) const
{
    auto first = changes.lower_bound({change::OWN, file, 0, 0, 0, 0, ""});
    auto end = changes.lower_bound({change::OWN, file, offset, 0, 0, 0, ""});
    return std::any_of(first, end, [](const change &c) { return c.what != change::INCLUDE; });
}

const char *obstacle_to_parameter(const FunctionDecl *declaration, const std::string &project)
{
    FunctionTypeLoc type = type_of(declaration);
    if (has_coalesce(declaration)) {
        return nullptr;
    }
    if (type.isNull()) {
        return "it is declared by a type's name";
    }
    if (declaration->getNumParams() && !declaration->hasWrittenPrototype()) {
        return "its definition is in the style before ANSI C";
    }
    const ASTContext &context = declaration->getASTContext();
    if (!declaration->getNumParams()) {
        return obstacle_to_empty_list(type.getLParenLoc(), type.getRParenLoc(), true, context,
                                      project);
    }
    const char *found = obstacle_to_token(type.getLParenLoc(), "(", context, project);
    return found ? found : obstacle_to_token(type.getRParenLoc(), ")", context, project);
}

const char *obstacle_to_argument(const Expr *call, const ASTContext &context,
                                 const std::string &project)
{
    const auto *plain = dyn_cast<CallExpr>(call);
    if (!plain) {
        return "it is no call";
    }
    if (has_argument(plain)) {
        return nullptr;
    }
    if (isa<ParenExpr>(plain->getCallee()->IgnoreImpCasts())) {
        return "its function is in parentheses";
    }
    for (const Expr *argument : plain->arguments()) {
        if (isa<CXXDefaultArgExpr>(argument)) {
            return "it has default arguments";
        }
    }
    if (plain->getNumArgs() == 0) {
        SourceLocation left = left_parenthesis(plain, context);
        return left.isInvalid()
                   ? "it is in a macro"
                   : obstacle_to_empty_list(left, plain->getRParenLoc(), false, context, project);
    }
    return obstacle_to_token(plain->getRParenLoc(), ")", context, project);
}

bool has_coalesce(const FunctionDecl *declaration)
{
    unsigned count = declaration->getNumParams();
    const ParmVarDecl *last = count ? declaration->getParamDecl(count - 1) : nullptr;
    return last && last->getName() == "coalesce" && last->getType()->isBooleanType();
}

bool has_argument(const CallExpr *call)
{
    const FunctionDecl *called = call->getDirectCallee();
    const allocation_function *allocates =
        called && called->getIdentifier() ? find_allocation_function(called->getName()) : nullptr;
    unsigned plain = 0;
    if (allocates && allocates->collective) {
        plain = allocates->count < 0 ? 1 : 2;
    } else if (called && has_coalesce(called)) {
        plain = called->getNumParams() - 1;
    } else {
        return false;
    }
    return call->getNumArgs() > plain && !isa<CXXDefaultArgExpr>(call->getArg(plain));
}

void add_changes(collector &found, const program &all, bool ports)
{
    std::set<const function *> parameters, entries;
    for (const decision &d : all.decisions) {
        if (d.gets == flag::none) {
            continue;
        }
        add_argument(found, d);
        if (d.in->is_entry) {
            entries.insert(d.in);
        } else {
            parameters.insert(d.in);
        }
    }
    for (const function *f : parameters) {
        for (const FunctionDecl *declaration : all.declarations_of(f)) {
            add_parameter(found, declaration);
        }
    }
    for (const function *f : entries) {
        frame_entry(found, all.folder(), f);
    }
    for (const function *f :
         found.changes.empty() && !ports ? std::vector<const function *>() : all.functions()) {
        add_casts(found, f->definition, all.folder());
        if (!f->is_entry && !all.is_cuda() && !entries.empty()) {
            clean_at_ends(found, all.folder(), f);
        }
    }
}

const change *change_set::conflict() const
{
    for (size_t i = 1; i < changes.size(); i++) {
        const change &a = changes[i - 1], &b = changes[i];
        bool is_same_place = a.file == b.file && a.offset == b.offset && a.what == b.what;
        bool overlap = a.file == b.file && a.offset + a.length > b.offset;
        if (overlap || (is_same_place && a.what != change::CLOSE && a.what != change::CAST)) {
            return &b;
        }
    }
    return nullptr;
}

std::string change_set::apply(const std::string &file) const
{
    const std::string &text = parsed.find(file)->second;
    std::string result;
    size_t done = 0;
    auto c =
        std::lower_bound(changes.begin(), changes.end(), change{change::OWN, file, 0, 0, 0, 0, ""});
    for (; c != changes.end() && c->file == file; ++c) {
        result.append(text, done, c->offset - done).append(c->text);
        done = c->offset + c->length;
    }
    return result.append(text, done, std::string::npos);
}

} // namespace rewrite
