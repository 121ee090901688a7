/* SPDX-License-Identifier: MIT
 *
 * Visits of statements and declarations. Clang's RecursiveASTVisitor does this, too, but takes
 * longer to compile than the rest of a file.
 */
#ifndef GPUALLOC_REWRITE_WALK_H
#define GPUALLOC_REWRITE_WALK_H

#include <clang/AST/Decl.h>
#include <clang/AST/DeclTemplate.h>
#include <clang/AST/ExprCXX.h>
#include <llvm/Support/Casting.h>

namespace rewrite
{

/* Call visit(statement, parent) for each statement and expression, a parent before its children.
 * Not those in lambdas, which are functions of their own, nor in the operands of sizeof. */
template <typename Visit>
void each_statement(const clang::Stmt *statement, const clang::Stmt *parent, const Visit &visit)
{
    if (!statement || llvm::isa<clang::UnaryExprOrTypeTraitExpr>(statement)) {
        return;
    }
    visit(statement, parent);
    if (const auto *lambda = llvm::dyn_cast<clang::LambdaExpr>(statement)) {
        for (const clang::Expr *captured : lambda->capture_inits()) {
            each_statement(captured, statement, visit);
        }
        return;
    }
    if (const auto *region = llvm::dyn_cast<clang::CapturedStmt>(statement)) { /* of OpenMP */
        each_statement(region->getCapturedStmt(), statement, visit);
    }
    for (const clang::Stmt *child : statement->children()) {
        each_statement(child, statement, visit);
    }
}

/* Call function(declaration) for each function, instances of templates included, and
 * variable(declaration) for each variable outside of functions. */
template <typename Function, typename Variable>
void each_declaration(const clang::DeclContext *in, const Function &function,
                      const Variable &variable)
{
    for (const clang::Decl *d : in->decls()) {
        if (const auto *of_functions = llvm::dyn_cast<clang::FunctionTemplateDecl>(d)) {
            for (const clang::FunctionDecl *instance : of_functions->specializations()) {
                function(instance);
            }
        } else if (const auto *of_classes = llvm::dyn_cast<clang::ClassTemplateDecl>(d)) {
            for (const clang::DeclContext *instance : of_classes->specializations()) {
                each_declaration(instance, function, variable);
            }
        } else if (const auto *f = llvm::dyn_cast<clang::FunctionDecl>(d)) {
            function(f);
        } else if (const auto *v = llvm::dyn_cast<clang::VarDecl>(d)) {
            variable(v);
        } else if (const auto *inner = llvm::dyn_cast<clang::DeclContext>(d)) {
            each_declaration(inner, function, variable);
        }
    }
}

} // namespace rewrite

#endif
