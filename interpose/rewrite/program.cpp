/* SPDX-License-Identifier: MIT */
#include "program.h"

#include "walk.h"

#include <clang/AST/Attr.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Index/USRGeneration.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/Support/Casting.h>
#include <llvm/Support/raw_ostream.h>

using namespace clang;
using llvm::cast;
using llvm::dyn_cast;
using llvm::isa;

namespace rewrite
{
namespace
{

bool runs_on_device(const FunctionDecl *function)
{
    return function->hasAttr<CUDADeviceAttr>() || function->hasAttr<CUDAGlobalAttr>();
}

/* Two files have the same definition: one of a header, with the same macros. */
bool is_equal(const FunctionDecl *a, const FunctionDecl *b)
{
    std::string texts[2];
    const FunctionDecl *both[2] = {a, b};
    place at[2];
    for (int i : {0, 1}) {
        const ASTContext &context = both[i]->getASTContext();
        at[i] = place_of(context.getSourceManager(), both[i]->getLocation());
        if (context.getSourceManager().isInSystemHeader(both[i]->getLocation())) {
            return true;
        }
        llvm::raw_string_ostream stream(texts[i]);
        both[i]->getBody()->printPretty(stream, nullptr, context.getPrintingPolicy());
        stream.flush();
    }
    return !(at[0] < at[1]) && !(at[1] < at[0]) && texts[0] == texts[1];
}

/* The function may say what MPI does after an error. */
bool takes_handler(const FunctionDecl *f)
{
    if (f->getNameAsString().find("rrhandler") != std::string::npos) {
        return true;
    }
    for (const ParmVarDecl *parameter : f->parameters()) {
        QualType type = parameter->getType();
        type = type->isPointerType() ? type->getPointeeType() : type;
        const auto *by_name = type->getAs<TypedefType>();
        if (by_name && by_name->getDecl()->getName() == "MPI_Errhandler") {
            return true;
        }
    }
    return false;
}

} // namespace

/* The name of a function or variable, equal in all files; those of one file alone differ. */
static std::string make_key(const Decl *declaration)
{
    llvm::SmallString<128> name;
    if (index::generateUSRForDecl(declaration, name)) {
        const SourceManager &sources = declaration->getASTContext().getSourceManager();
        place at = place_of(sources, declaration->getLocation());
        return at.file + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
    }
    std::string key = name.str().str();
    const auto *named = dyn_cast<ValueDecl>(declaration);
    if (named && !named->isExternallyVisible()) {
        /* Each file has one of its own, also of a header, which may mean something else there. */
        const SourceManager &sources = named->getASTContext().getSourceManager();
        place at = place_of(sources, named->getLocation());
        key += "@" + place_of(sources, sources.getLocForStartOfFile(sources.getMainFileID())).file;
        key += "@" + at.file;
    }
    if (named && isa<FunctionDecl>(named) && named->isWeak()) { /* perhaps another one is called */
        key += "@weak";
    }
    return key;
}

const std::string &program::key_of(const Decl *declaration) const
{
    auto found = keys.find(declaration);
    return found != keys.end() ? found->second
                               : keys.emplace(declaration, make_key(declaration)).first->second;
}

/* The function may be called other than by a call that the analysis sees. */
void program::take_address(const FunctionDecl *f, const std::string &text, const void *key,
                           SourceLocation where)
{
    const SourceManager &sources = f->getASTContext().getSourceManager();
    address_taken.emplace(key_of(f),
                          explain(key, {false, text, place_of(sources, where), nullptr}));
}

void program::look_at_name(const DeclRefExpr *name, bool is_called)
{
    const auto *f = dyn_cast<FunctionDecl>(name->getDecl());
    if (!f) {
        return;
    }
    fatal = fatal && !takes_handler(f);
    if (f->isMain()) { /* not with the arguments of the first call */
        take_address(f, "the program calls main()", name, name->getBeginLoc());
    } else if (!is_called) {
        take_address(f, "the address of the function is taken", name, name->getBeginLoc());
    }
}

void program::look_at_variable(const VarDecl *variable)
{
    if (has_other_label(variable)) {
        place at = place_of(variable->getASTContext().getSourceManager(), variable->getLocation());
        renamed = explain(variable, {false, "two names may mean one variable", at, nullptr});
    }
    if (variable->isThisDeclarationADefinition() != VarDecl::DeclarationOnly) {
        defined.insert(key_of(variable));
    }
    if (variable->hasGlobalStorage() && variable->getInit()) {
        ASTContext &context = variable->getASTContext();
        add_initial(variable, variable->getInit());
        if (context.getLangOpts().CPlusPlus && !variable->getInit()->isValueDependent() &&
            !variable->getInit()->isConstantInitializer(context, false)) {
            place at = place_of(context.getSourceManager(), variable->getLocation());
            share_global(variable, explain(variable, {false,
                                                      "the analysis does not follow initial "
                                                      "values that are computed",
                                                      at, nullptr}));
        }
    }
    if (const auto *cleanup = variable->getAttr<CleanupAttr>()) {
        const FunctionDecl *f = cleanup->getFunctionDecl();
        take_address(f, "the function is called at the end of a block", f, f->getLocation());
    }
}

/* Notice functions whose addresses are taken, changes of MPI's error handler, variables that
 * outlive a call, and the functions of lambdas. */
void program::look_at(const Stmt *body)
{
    std::set<const Stmt *> called;
    each_statement(body, nullptr, [&](const Stmt *statement, const Stmt *) {
        if (const auto *call = dyn_cast<CallExpr>(statement)) {
            called.insert(call->getCallee()->IgnoreParenImpCasts());
        } else if (const auto *lambda = dyn_cast<LambdaExpr>(statement)) {
            add_function(lambda->getCallOperator());
        } else if (const auto *name = dyn_cast<DeclRefExpr>(statement)) {
            look_at_name(name, called.count(name));
        } else if (const auto *declaration = dyn_cast<DeclStmt>(statement)) {
            for (const Decl *d : declaration->decls()) {
                if (const auto *variable = dyn_cast<VarDecl>(d)) {
                    look_at_variable(variable);
                } else if (const auto *f = dyn_cast<FunctionDecl>(d)) {
                    add_function(f);
                }
            }
        }
    });
}

void program::add_function(const FunctionDecl *f)
{
    if (f->isDependentContext() || (cuda && !runs_on_device(f))) {
        return;
    }
    if (const auto *alias = f->getAttr<AliasAttr>()) {
        aliases.insert(alias->getAliasee().str());
    }
    if (const auto *label = f->getAttr<AsmLabelAttr>()) {
        aliases.insert(label->getLabel().str());
    }
    declarations[key_of(f)].push_back(f);
    if (f->doesThisDeclarationHaveABody()) {
        auto known = definitions.emplace(key_of(f), f);
        if (!known.second && !is_equal(known.first->second, f)) {
            ambiguous.insert(known.first->first);
            give_up(known.first->second, known.first->second->getBody());
            give_up(f, f->getBody());
        }
        look_at(f->getBody());
        each_hidden_size(f, [&](const Expr *size) { give_up(f, size); });
    }
}

/* The analysis does not see when this part of the function runs: variables that it names may vary
 * then, and functions that it names may be called. */
void program::give_up(const FunctionDecl *f, const Stmt *part)
{
    each_statement(part, nullptr, [&](const Stmt *statement, const Stmt *) {
        const auto *name = dyn_cast<DeclRefExpr>(statement);
        const auto *called = name ? dyn_cast<FunctionDecl>(name->getDecl()) : nullptr;
        const auto *variable = name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
        const char *why = "it is used where the analysis does not follow";
        if (called) {
            take_address(called, why, name, name->getBeginLoc());
        } else if (variable && variable->hasGlobalStorage()) {
            place at = place_of(f->getASTContext().getSourceManager(), name->getBeginLoc());
            share_global(variable, explain(name, {false, why, at, nullptr}));
        }
    });
}

void program::add(ASTContext &file)
{
    each_declaration(
        file.getTranslationUnitDecl(), [this](const FunctionDecl *f) { add_function(f); },
        [this](const VarDecl *v) {
            look_at(v->getInit());
            look_at_variable(v);
        });
}

/* Begin with all functions of the program, after all files have been added. */
void program::find_all()
{
    for (const auto &[key, f] : definitions) {
        if (aliases.count(f->getNameAsString()) || f->hasAttr<ConstructorAttr>() ||
            f->hasAttr<DestructorAttr>()) {
            take_address(f, "the function may be called by another name, or by none", f,
                         f->getLocation());
        }
        if (!f->getASTContext().getSourceManager().isInSystemHeader(f->getLocation())) {
            find(f);
        }
    }
}

/* Find the calls that end all ranks, before the first function is analysed. */
void program::find_ends()
{
    std::vector<const FunctionDecl *> all;
    std::set<const FunctionDecl *> anywhere;
    for (const auto &m : members) {
        const FunctionDecl *f = m->analysis->definition;
        all.push_back(f);
        if (address_taken.count(key_of(f))) {
            anywhere.insert(f);
        }
    }
    auto find_definition = [this](const FunctionDecl *called) {
        function *found = find(called);
        return found ? found->definition : nullptr;
    };
    ends.analyse(all, find_definition, anywhere);
}

/* The initial value of a variable that outlives a call: a pointer to another one, or a value that
 * differs between threads. */
void program::add_initial(const VarDecl *variable, const Stmt *value)
{
    ASTContext &context = variable->getASTContext();
    auto share = [&](const VarDecl *shared, const std::string &why) {
        place at = place_of(context.getSourceManager(), value->getBeginLoc());
        share_global(shared, explain(value, {false, shared->getNameAsString() + why, at, nullptr}));
    };
    const auto *name = dyn_cast<DeclRefExpr>(value);
    const auto *other = name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
    if (const char *why = differs_at_first(value, context)) {
        share(variable, std::string(" ") + why + " at first");
    }
    if (other && other->hasGlobalStorage()) {
        share(other, " is pointed to by the initial value of a variable");
    }
    for (const Stmt *part : value->children()) {
        if (part && !isa<UnaryExprOrTypeTraitExpr>(part)) {
            add_initial(variable, part);
        }
    }
}

/* ---- surroundings --------------------------------------------------------------------------- */

program::member &program::member_of(const function *f) const
{
    return *members[f->number];
}

const std::vector<const FunctionDecl *> &program::declarations_of(const function *f) const
{
    static const std::vector<const FunctionDecl *> none;
    auto found = declarations.find(key_of(f->definition));
    return found == declarations.end() ? none : found->second;
}

std::vector<const function *> program::functions() const
{
    std::vector<const function *> all;
    for (const auto &m : members) {
        all.push_back(m->analysis.get());
    }
    return all;
}

function *program::find(const FunctionDecl *called)
{
    const FunctionDecl *canonical = called->getCanonicalDecl();
    auto found = known.find(canonical);
    if (found == known.end()) {
        const std::string &key = key_of(called);
        auto entry = by_key.find(key);
        if (ambiguous.count(key)) {
            return nullptr;
        }
        if (entry == by_key.end()) {
            const FunctionDecl *definition = nullptr;
            auto defined = definitions.find(key);
            if (defined != definitions.end()) {
                definition = defined->second;
            } else if (!called->hasBody(definition) || (cuda && !runs_on_device(called))) {
                return nullptr; /* perhaps a file that is added later has it */
            }
            if (called->getIdentifier() && find_library_function(called->getName()) &&
                definition->getASTContext().getSourceManager().isInSystemHeader(
                    definition->getLocation())) {
                return nullptr; /* an inline function of the library, such as atoi() */
            }
            bool is_entry = cuda ? definition->hasAttr<CUDAGlobalAttr>()
                                 : definition->isMain() && !address_taken.count(key);
            size_t number = members.size();
            auto made = std::make_unique<member>();
            made->analysis = std::make_unique<function>(definition, number, is_entry, *this);
            made->parameter_varies.resize(definition->getNumParams());
            members.push_back(std::move(made));
            waiting.insert(number);
            entry = by_key.emplace(key, members.back().get()).first;
        }
        found = known.try_emplace(canonical, entry->second).first;
    }
    if (running) {
        found->second->callers.insert(running->number);
    }
    return found->second->analysis.get();
}

void program::vary(global_variable &variable, const cause *why)
{
    if (why && !variable.why) {
        variable.why = why;
        waiting.insert(variable.readers.begin(), variable.readers.end());
    }
}

variance program::global(const VarDecl *variable)
{
    global_variable &found = globals[key_of(variable)];
    found.readers.insert(running->number);
    const SourceManager &sources = variable->getASTContext().getSourceManager();
    std::string name = variable->getNameAsString();
    place at = place_of(sources, variable->getLocation());
    vary(found, renamed);
    if (variable->isWeak()) {
        vary(found, explain(variable, {false, name + " is weak", at, nullptr}));
    }
    if (cuda) {
        vary(found, explain(variable, {false, "all threads share " + name, at, nullptr}));
    } else if (variable->isExternallyVisible()) {
        found.outside = true;
        if (!defined.count(key_of(variable))) {
            vary(found, explain(variable, {false, name + " is not in these files", at, nullptr}));
        }
        vary(found, unknown_call);
    }
    return {0, found.why};
}

void program::assign_global(const VarDecl *variable, const variance &value, const function &in)
{
    global_variable &found = globals[key_of(variable)];
    auto known = found.assigned.try_emplace(in.number);
    if (known.first->second.join(value) || known.second) {
        unresolved.insert(&found);
        member_of(&in).assigns.insert(&found);
    }
    vary(found, value.why);
}

void program::share_global(const VarDecl *variable, const cause *why)
{
    vary(globals[key_of(variable)], why);
}

void program::meet_apart(unsigned kinds, const cause *why)
{
    for (meeting kind : {OF_ALL, OF_WARP}) {
        if ((kinds & kind) && apart.emplace(kind, why).second) {
            waiting.insert(collective.begin(), collective.end());
        }
    }
}

const cause *program::meets_apart(meeting kind)
{
    auto found = apart.find(kind);
    collective.insert(running->number);
    return found == apart.end() ? nullptr : found->second;
}

void program::call_unknown(const cause *why)
{
    if (unknown_call) {
        return;
    }
    unknown_call = why;
    for (auto &[key, variable] : globals) {
        if (variable.outside) {
            vary(variable, why);
        }
    }
}

const allocation_function *program::registered(llvm::StringRef name)
{
    auto found = registry.find(name.str());
    return found == registry.end() ? nullptr : &found->second;
}

const cause *program::explain(const void *key, cause why)
{
    const cause *known = explained(key, why.text);
    if (!known) {
        all_causes.push_back(std::move(why));
        known = &all_causes.back();
        all_causes.back().root = known->origin ? known->origin->root : known;
        causes_of[key].push_back(known);
    }
    return known;
}

const cause *program::explained(const void *key, llvm::StringRef text) const
{
    auto found = causes_of.find(key);
    if (found != causes_of.end()) {
        for (const cause *known : found->second) {
            if (known->text == text) {
                return known;
            }
        }
    }
    return nullptr;
}

bool program::errors_are_fatal() const
{
    return fatal;
}

bool program::ends_all(const CallExpr *call) const
{
    return ends.ends_all(call);
}

bool program::is_cuda() const
{
    return cuda;
}

} // namespace rewrite
