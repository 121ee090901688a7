/* SPDX-License-Identifier: MIT
 *
 * Changes that make an MPI program in C one for a GPU, with gpualloc/gpu_mpi.cuh: functions get
 * __device__, main() another name, and each rank its own variables.
 */
#ifndef GPUALLOC_REWRITE_PORT_H
#define GPUALLOC_REWRITE_PORT_H

#include "edit.h"
#include "report.h"

#include <clang/AST/ASTContext.h>

#include <vector>

namespace rewrite
{

/* Returns what has to be done by hand. The contexts are those of all files of the program. */
std::vector<not_ported> add_port(collector &to, program &all,
                                 const std::vector<clang::ASTContext *> &files);

/* The function has a version for kernels, and is one of numbers. */
bool is_available(llvm::StringRef name);
bool is_numeric(llvm::StringRef name);

/* Each file that changes includes the header of MPI on a GPU, instead of mpi.h or first. */
void include_header(collector &to, const clang::ASTContext &context, const std::string &project);

} // namespace rewrite

#endif
