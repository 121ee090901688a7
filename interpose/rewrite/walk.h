/* SPDX-License-Identifier: MIT
 *
 * Visits of statements and declarations. Clang's RecursiveASTVisitor does this, too, but takes
 * longer to compile than the rest of a file.
 */
#ifndef GPUALLOC_REWRITE_WALK_H
#define GPUALLOC_REWRITE_WALK_H

#include <clang/AST/ASTContext.h>
#include <clang/AST/Attr.h>
#include <clang/AST/Decl.h>
#include <clang/AST/DeclTemplate.h>
#include <clang/AST/ExprCXX.h>
#include <clang/Basic/SourceManager.h>
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

/* Call visit(size) for the size of each array in a type, but not for those of its typedefs. */
template <typename Visit>
void each_size(clang::QualType type, const clang::ASTContext &context, const Visit &visit)
{
    clang::QualType before;
    while (type != before) {
        before = type;
        if (const auto *array = llvm::dyn_cast<clang::VariableArrayType>(type.getTypePtr())) {
            visit(array->getSizeExpr());
        }
        if (const auto *array = llvm::dyn_cast<clang::ArrayType>(type.getTypePtr())) {
            type = array->getElementType();
        } else if (const auto *to = llvm::dyn_cast<clang::PointerType>(type.getTypePtr())) {
            type = to->getPointeeType();
        } else if (!llvm::isa<clang::TypedefType>(type.getTypePtr())) {
            type = type.getSingleStepDesugaredType(context);
        }
    }
}

/* Call visit(size) for sizes with effects that neither the children of statements nor Clang's
 * control-flow graph have: those in the types of casts, of parameters, behind pointers, and in
 * typeof. */
template <typename Visit>
void each_hidden_size(const clang::Stmt *statement, const clang::ASTContext &context,
                      const Visit &visit)
{
    auto see = [&](const clang::Expr *size) {
        if (size && size->HasSideEffects(context)) {
            visit(size);
        }
    };
    if (const auto *cast = llvm::dyn_cast<clang::ExplicitCastExpr>(statement)) {
        each_size(cast->getTypeAsWritten(), context, see);
    } else if (const auto *argument = llvm::dyn_cast<clang::VAArgExpr>(statement)) {
        each_size(argument->getType(), context, see);
    } else if (const auto *declaration = llvm::dyn_cast<clang::DeclStmt>(statement)) {
        for (const clang::Decl *d : declaration->decls()) {
            const auto *variable = llvm::dyn_cast<clang::VarDecl>(d);
            clang::QualType type = variable ? variable->getType() : clang::QualType();
            while (variable && llvm::isa<clang::ArrayType>(type.getTypePtr())) { /* in the graph */
                type = llvm::cast<clang::ArrayType>(type.getTypePtr())->getElementType();
            }
            if (variable) {
                each_size(type, context, see);
            }
        }
    }
    for (const clang::Stmt *child : statement->children()) {
        if (child) {
            each_hidden_size(child, context, visit);
        }
    }
}

template <typename Visit> void each_hidden_size(const clang::FunctionDecl *f, const Visit &visit)
{
    const clang::ASTContext &context = f->getASTContext();
    for (const clang::ParmVarDecl *parameter : f->parameters()) {
        each_size(parameter->getOriginalType(), context, [&](const clang::Expr *size) {
            if (size && size->HasSideEffects(context)) {
                visit(size);
            }
        });
    }
    each_hidden_size(f->getBody(), context, visit);
}

/* The linker may know the function or variable by another name than the source does. Headers of the
 * system do that, too, but what they declare is what its name says. */
inline bool has_other_label(const clang::NamedDecl *named)
{
    bool has = named->hasAttr<clang::AsmLabelAttr>() || named->hasAttr<clang::AliasAttr>() ||
               named->hasAttr<clang::WeakRefAttr>();
    return has && !named->getASTContext().getSourceManager().isInSystemHeader(named->getLocation());
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
