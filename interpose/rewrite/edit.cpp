/* SPDX-License-Identifier: MIT */
#include "edit.h"

#include "program.h"
#include "walk.h"

#include <clang/AST/ASTContext.h>
#include <clang/AST/TypeLoc.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Lexer.h>
#include <llvm/ADT/SmallString.h>
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

std::string path_of(const SourceManager &sources, SourceLocation location)
{
    llvm::SmallString<256> path(sources.getFilename(sources.getFileLoc(location)));
    llvm::sys::fs::make_absolute(path);
    llvm::sys::path::remove_dots(path, true);
    return path.str().str();
}

const char *obstacle_at(SourceLocation location, const SourceManager &sources,
                        const std::string &project)
{
    if (location.isInvalid()) {
        return "the place in the source is not known";
    }
    if (location.isMacroID()) {
        return "it is in a macro";
    }
    if (sources.isInSystemHeader(location)) {
        return "it is in a header of the system";
    }
    std::string path = path_of(sources, location);
    return llvm::StringRef(path).substr(0, project.size()) == project
               ? nullptr
               : "its file is not in the project";
}

FunctionTypeLoc type_of(const FunctionDecl *declaration)
{
    const TypeSourceInfo *type = declaration->getTypeSourceInfo();
    return type ? type->getTypeLoc().IgnoreParens().getAs<FunctionTypeLoc>() : FunctionTypeLoc();
}

SourceLocation argument_location(const Expr *call)
{
    const auto *plain = dyn_cast<CallExpr>(call);
    return plain ? plain->getRParenLoc() : SourceLocation();
}

/* ---- collecting changes --------------------------------------------------------------------- */

class collector
{
  public:
    void add(const SourceManager &sources, SourceLocation at, unsigned length, std::string text)
    {
        std::string file = path_of(sources, at);
        parsed.try_emplace(file, sources.getBufferData(sources.getFileID(at)).str());
        changes.insert({std::move(file), sources.getFileOffset(at), length,
                        sources.getSpellingLineNumber(at), sources.getSpellingColumnNumber(at),
                        std::move(text)});
    }

    std::set<change> changes;
    std::map<std::string, std::string> parsed;
};

void add_argument(collector &to, const decision &d)
{
    const auto *call = dyn_cast<CallExpr>(d.site->expression);
    const SourceManager &sources = d.in->definition->getASTContext().getSourceManager();
    if (!call || has_argument(call)) {
        return;
    }
    std::string text = d.gets == flag::always ? "true" : "coalesce";
    to.add(sources, call->getRParenLoc(), 0, (call->getNumArgs() ? ", " : "") + text);
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
        to.add(sources, type.getRParenLoc(), 0, ", " + text);
        return;
    }
    SourceLocation begin = type.getLParenLoc().getLocWithOffset(1);
    unsigned between = sources.getFileOffset(type.getRParenLoc()) - sources.getFileOffset(begin);
    to.add(sources, begin, between, text); /* instead of `void`, if that is there */
}

/* ---- the ends of an entry -------------------------------------------------------------------- */

/* The function calls another one to compute the value. */
bool has_call(const Stmt *part)
{
    bool found = false;
    each_statement(part, nullptr,
                   [&](const Stmt *inner, const Stmt *) { found = found || isa<CallExpr>(inner); });
    return found;
}

/* A new line with the indentation of the statement, if that begins its line. */
std::string space_before(SourceLocation begin, const SourceManager &sources)
{
    llvm::StringRef text = sources.getBufferData(sources.getFileID(begin));
    llvm::StringRef before = text.take_front(sources.getFileOffset(begin));
    llvm::StringRef indentation = before.drop_front(before.find_last_of('\n') + 1);
    return indentation.trim().empty() ? "\n" + indentation.str() : " ";
}

/* Clean up before a statement that leaves the program. A result that calls functions is computed
 * before. */
void finish_before(collector &to, const ASTContext &context, const Stmt *statement,
                   const Stmt *parent)
{
    const SourceManager &sources = context.getSourceManager();
    const auto *leaves = dyn_cast<ReturnStmt>(statement);
    SourceLocation begin = statement->getBeginLoc();
    SourceLocation end = Lexer::findLocationAfterToken(statement->getEndLoc(), tok::semi, sources,
                                                       context.getLangOpts(), false);
    if (begin.isMacroID() || end.isInvalid()) {
        return;
    }
    if (leaves && has_call(leaves->getRetValue())) {
        to.add(sources, begin, sizeof "return" - 1, "{ int gpualloc_result =");
        to.add(sources, end, 0, " clean_malloc(); return gpualloc_result; }");
    } else if (isa<CompoundStmt>(parent)) {
        to.add(sources, begin, 0, "clean_malloc();" + space_before(begin, sources));
    } else {
        to.add(sources, begin, 0, "{ clean_malloc(); ");
        to.add(sources, end, 0, " }");
    }
}

/* The statements that leave main() or a kernel, and exit() in any function. */
void find_ends(collector &to, const function *f)
{
    const ASTContext &context = f->definition->getASTContext();
    each_statement(
        f->definition->getBody(), nullptr, [&](const Stmt *statement, const Stmt *parent) {
            const auto *call = dyn_cast<CallExpr>(statement);
            const FunctionDecl *called = call ? call->getDirectCallee() : nullptr;
            bool exits = called && called->getIdentifier() && called->getName() == "exit";
            if (exits || (f->is_entry && isa<ReturnStmt>(statement))) {
                finish_before(to, context, statement, parent);
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
        cast->getType()->isVoidPointerType() || cast->isPartOfExplicitCast() ||
        obstacle_at(from->getBeginLoc(), sources, project) ||
        obstacle_at(from->getEndLoc(), sources, project)) {
        return;
    }
    const Expr *inner = from->IgnoreParenImpCasts();
    bool is_primary = from != from->IgnoreParens() || isa<CallExpr>(inner) ||
                      isa<DeclRefExpr>(inner) || isa<MemberExpr>(inner) ||
                      isa<ArraySubscriptExpr>(inner);
    std::string text = "(" + cast->getType().getAsString(context.getPrintingPolicy()) + ")";
    to.add(sources, from->getBeginLoc(), 0, text + (is_primary ? "" : "("));
    if (!is_primary) {
        SourceLocation end =
            Lexer::getLocForEndOfToken(from->getEndLoc(), 0, sources, context.getLangOpts());
        to.add(sources, end, 0, ")");
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

bool calls_already(const CompoundStmt *body, const char *name)
{
    for (const Stmt *statement : body->body()) {
        const auto *call = dyn_cast<CallExpr>(statement);
        const FunctionDecl *called = call ? call->getDirectCallee() : nullptr;
        if (called && called->getIdentifier() && called->getName() == name) {
            return true;
        }
    }
    return false;
}

void frame_entry(collector &to, const function *entry)
{
    const SourceManager &sources = entry->definition->getASTContext().getSourceManager();
    const auto *body = dyn_cast<CompoundStmt>(entry->definition->getBody());
    if (!body || calls_already(body, "init_malloc")) {
        return;
    }
    to.add(sources, body->getLBracLoc().getLocWithOffset(1), 0, "\n  init_malloc();");
    if (body->body_empty() || !isa<ReturnStmt>(body->body_back())) {
        to.add(sources, body->getRBracLoc(), 0, "  clean_malloc();\n");
    }
    find_ends(to, entry);
}

} // namespace

const char *obstacle_to_parameter(const FunctionDecl *declaration, const std::string &project)
{
    const SourceManager &sources = declaration->getASTContext().getSourceManager();
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
    const char *found = obstacle_at(type.getLParenLoc(), sources, project);
    return found ? found : obstacle_at(type.getRParenLoc(), sources, project);
}

const char *obstacle_to_argument(const Expr *call, const ASTContext &context,
                                 const std::string &project)
{
    const auto *plain = dyn_cast<CallExpr>(call);
    if (plain && has_argument(plain)) {
        return nullptr;
    }
    return obstacle_at(argument_location(call), context.getSourceManager(), project);
}

bool has_coalesce(const FunctionDecl *declaration)
{
    unsigned count = declaration->getNumParams();
    return count && declaration->getParamDecl(count - 1)->getName() == "coalesce";
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

change_set make_changes(const program &all)
{
    collector found;
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
        frame_entry(found, f);
    }
    for (const function *f :
         found.changes.empty() ? std::vector<const function *>() : all.functions()) {
        add_casts(found, f->definition, all.folder());
        if (!f->is_entry && !all.is_cuda()) {
            find_ends(found, f);
        }
    }
    return {{found.changes.begin(), found.changes.end()}, std::move(found.parsed)};
}

std::string change_set::apply(const std::string &file) const
{
    const std::string &text = parsed.find(file)->second;
    std::string result;
    size_t done = 0;
    for (const change &c : changes) {
        if (c.file == file) {
            result.append(text, done, c.offset - done).append(c.text);
            done = c.offset + c.length;
        }
    }
    return result.append(text, done, std::string::npos);
}

} // namespace rewrite
