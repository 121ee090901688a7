/* SPDX-License-Identifier: MIT
 *
 * Whether pointers are NULL, and tests of that (function.h).
 */
#include "function.h"

#include <clang/AST/ASTContext.h>
#include <llvm/Support/Casting.h>

using namespace clang;
using llvm::dyn_cast;

namespace rewrite
{

/* The pointer is a constant NULL. */
bool function::is_null(const Expr *pointer) const
{
    return pointer->IgnoreParenImpCasts()->isNullPointerConstant(definition->getASTContext(),
                                                                 Expr::NPC_ValueDependentIsNotNull);
}

/* The variance of `pointer == NULL`. */
variance function::null(const Expr *pointer)
{
    pointer = pointer->IgnoreParens();
    auto found = nulls.find(pointer);
    return found != nulls.end() ? found->second : compute_null(pointer);
}

/* From the parts of the expression. What is not known to keep the property varies as the pointer
 * itself does. */
variance function::compute_null(const Expr *pointer)
{
    pointer = pointer->IgnoreParens();
    if (const auto *cast = dyn_cast<CastExpr>(pointer)) {
        const Expr *from = cast->getSubExpr()->IgnoreParens();
        if (cast->getCastKind() == CK_LValueToRValue) {
            const auto *name = dyn_cast<DeclRefExpr>(from);
            const auto *variable = name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
            auto followed =
                variable ? variables.find(variable->getCanonicalDecl()) : variables.end();
            return followed != variables.end() ? now->nulls[followed->second] : value(pointer);
        }
        bool keeps = cast->getCastKind() == CK_BitCast || cast->getCastKind() == CK_NoOp;
        return keeps && from->getType()->isPointerType() ? null(from) : value(pointer);
    }
    if (const auto *binary = dyn_cast<BinaryOperator>(pointer)) {
        bool is_right = binary->isCommaOp() || binary->getOpcode() == BO_Assign;
        return is_right ? null(binary->getRHS()) : value(pointer);
    }
    if (const auto *either = dyn_cast<ConditionalOperator>(pointer)) {
        return truth(either->getCond()) | null(either->getTrueExpr()) |
               null(either->getFalseExpr());
    }
    return value(pointer);
}

/* The variance of the expression as a condition. */
variance function::truth(const Expr *condition)
{
    return condition->getType()->isPointerType() ? null(condition) : value(condition);
}

/* The expression is one of those that test if values, perhaps pointers, are zero: its variance is
 * stored. False for all others. */
bool function::compute_test(const Expr *expression, variance &found)
{
    if (const auto *binary = dyn_cast<BinaryOperator>(expression)) {
        const Expr *left = binary->getLHS(), *right = binary->getRHS();
        if (binary->isLogicalOp()) {
            found = truth(left) | truth(right);
            return true;
        }
        bool is_left = is_null(left);
        const Expr *other = is_left ? right : left;
        if (binary->isEqualityOp() && (is_left || is_null(right)) &&
            other->getType()->isPointerType()) {
            found = null(other);
            return true;
        }
    } else if (const auto *unary = dyn_cast<UnaryOperator>(expression)) {
        if (unary->getOpcode() == UO_LNot) {
            found = truth(unary->getSubExpr());
            return true;
        }
    } else if (const auto *cast = dyn_cast<CastExpr>(expression)) {
        if (cast->getCastKind() == CK_PointerToBoolean) {
            found = null(cast->getSubExpr());
            return true;
        }
    } else if (const auto *either = dyn_cast<ConditionalOperator>(expression)) {
        found =
            truth(either->getCond()) | value(either->getTrueExpr()) | value(either->getFalseExpr());
        return true;
    }
    return false;
}

} // namespace rewrite
