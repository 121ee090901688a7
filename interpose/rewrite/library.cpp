/* SPDX-License-Identifier: MIT */
#include "library.h"

#include <llvm/ADT/StringMap.h>

namespace rewrite
{
namespace
{

constexpr source none = source::nothing, same = source::constant, unknown = source::unknown,
                 status = source::status;

/* Functions whose result is determined by their arguments. */
const char *const pure[] = {"abs",
                            "labs",
                            "llabs",
                            "fabs",
                            "fabsf",
                            "sqrt",
                            "sqrtf",
                            "cbrt",
                            "pow",
                            "powf",
                            "exp",
                            "expf",
                            "exp2",
                            "log",
                            "logf",
                            "log2",
                            "log2f",
                            "log10",
                            "sin",
                            "cos",
                            "tan",
                            "asin",
                            "acos",
                            "atan",
                            "atan2",
                            "sinh",
                            "cosh",
                            "tanh",
                            "floor",
                            "floorf",
                            "ceil",
                            "ceilf",
                            "round",
                            "lround",
                            "trunc",
                            "rint",
                            "fmod",
                            "fmodf",
                            "sinf",
                            "cosf",
                            "tanf",
                            "expm1",
                            "log1p",
                            "hypot",
                            "fmin",
                            "fmax",
                            "fminf",
                            "fmaxf",
                            "isdigit",
                            "isalpha",
                            "isalnum",
                            "isspace",
                            "isupper",
                            "islower",
                            "toupper",
                            "tolower",
                            "isnan",
                            "isinf",
                            "min",
                            "max",
                            "umin",
                            "umax",
                            "__popc",
                            "__popcll",
                            "__clz",
                            "__clzll",
                            "__ffs",
                            "__ffsll",
                            "__brev",
                            "__mulhi",
                            "__umulhi",
                            "__builtin_expect",
                            "__builtin_popcount",
                            "__builtin_clz",
                            "__builtin_ctz",
                            "__builtin_ffs",
                            "__builtin_constant_p"};

/* Functions that read strings and return. */
const char *const readers[] = {"atoi",    "atol",    "atoll",    "atof",       "strtol",
                               "strtoll", "strtoul", "strtoull", "strtod",     "strtof",
                               "strlen",  "strcmp",  "strncmp",  "strcasecmp", "strncasecmp"};

/* Functions that return, keep no pointer, and write to no string of argv. */
const char *const harmless[] = {"printf",
                                "fprintf",
                                "puts",
                                "fputs",
                                "putchar",
                                "fputc",
                                "putc",
                                "fflush",
                                "perror",
                                "fopen",
                                "fclose",
                                "remove",
                                "access",
                                "stat",
                                "free",
                                "sleep",
                                "usleep",
                                "srand",
                                "srandom",
                                "srand48",
                                "time",
                                "clock",
                                "gettimeofday",
                                "clock_gettime",
                                "__builtin_object_size",
                                "__errno_location",
                                "fwrite",
                                "__ctype_b_loc",
                                "__ctype_tolower_loc",
                                "__ctype_toupper_loc",
                                "getpid",
                                "sysconf",
                                "getenv",
                                "nanosleep",
                                "sched_yield"};

/* Functions that return. Their results are as the memory and the files that they read. */
const char *const returning[] = {"sprintf",
                                 "alloca",
                                 "__builtin_alloca",
                                 "strtok_r",
                                 "mkdir",
                                 "isatty",
                                 "uname",
                                 "signal",
                                 "sigaction",
                                 "sigemptyset",
                                 "__builtin_flt_rounds",
                                 "omp_get_thread_num",
                                 "omp_get_num_threads",
                                 "omp_get_max_threads",
                                 "omp_get_num_procs",
                                 "omp_get_wtime",
                                 "omp_set_num_threads",
                                 "omp_in_parallel",
                                 "strcspn",
                                 "strspn",
                                 "strpbrk",
                                 "getcwd",
                                 "rmdir",
                                 "rename",
                                 "ftruncate",
                                 "fsync",
                                 "fileno",
                                 "fputws",
                                 "vsyslog",
                                 "ungetc",
                                 "getline",
                                 "getpagesize",
                                 "asctime",
                                 "gmtime",
                                 "mktime",
                                 "strsep",
                                 "__builtin_memmove",
                                 "__builtin_strlen",
                                 "__builtin_huge_val",
                                 "__builtin_inf",
                                 "__builtin_nan",
                                 "times",
                                 "ctime_r",
                                 "popen",
                                 "pclose",
                                 "ldexp",
                                 "frexp",
                                 "modf",
                                 "getrusage",
                                 "setbuf",
                                 "setvbuf",
                                 "gethostname",
                                 "snprintf",
                                 "vprintf",
                                 "vfprintf",
                                 "vsprintf",
                                 "vsnprintf",
                                 "__printf_chk",
                                 "__fprintf_chk",
                                 "scanf",
                                 "fscanf",
                                 "sscanf",
                                 "__isoc99_scanf",
                                 "__isoc99_fscanf",
                                 "__isoc99_sscanf",
                                 "fgets",
                                 "fgetc",
                                 "getc",
                                 "getchar",
                                 "fread",
                                 "fseek",
                                 "ftell",
                                 "rewind",
                                 "feof",
                                 "ferror",
                                 "memcpy",
                                 "memmove",
                                 "memset",
                                 "memcmp",
                                 "memchr",
                                 "bcopy",
                                 "bzero",
                                 "strcpy",
                                 "strncpy",
                                 "strcat",
                                 "strncat",
                                 "strchr",
                                 "strrchr",
                                 "strstr",
                                 "strtok",
                                 "strerror",
                                 "strdup",
                                 "rand",
                                 "random",
                                 "drand48",
                                 "lrand48",
                                 "mrand48",
                                 "erand48",
                                 "rand_r",
                                 "read",
                                 "write",
                                 "open",
                                 "close",
                                 "lseek",
                                 "unlink",
                                 "getopt",
                                 "getopt_long",
                                 "localtime",
                                 "ctime",
                                 "difftime",
                                 "strftime",
                                 "__ldg",
                                 "__threadfence",
                                 "__threadfence_block",
                                 "__threadfence_system",

                                 "__activemask",
                                 "assert",
                                 "__builtin_memcpy",
                                 "__builtin_memset",
                                 "__builtin_va_start",
                                 "__builtin_va_end",
                                 "MPI_Wtick",
                                 "MPI_Get_processor_name",
                                 "MPI_Get_version",
                                 "MPI_Get_count",
                                 "MPI_Get_elements",
                                 "MPI_Error_string",
                                 "MPI_Get_address",
                                 "MPI_Address",
                                 "MPI_Type_contiguous",
                                 "MPI_Type_vector",
                                 "MPI_Type_hvector",
                                 "MPI_Type_create_hvector",
                                 "MPI_Type_indexed",
                                 "MPI_Type_hindexed",
                                 "MPI_Type_struct",
                                 "MPI_Type_create_struct",
                                 "MPI_Type_create_resized",
                                 "MPI_Type_create_hindexed",
                                 "MPI_Type_create_indexed_block",
                                 "MPI_Type_create_hindexed_block",
                                 "MPI_Type_create_subarray",
                                 "MPI_Type_create_darray",
                                 "MPI_Type_dup",
                                 "MPI_Type_get_envelope",
                                 "MPI_Type_get_contents",
                                 "MPI_Type_get_true_extent",
                                 "MPI_Type_commit",
                                 "MPI_Type_free",
                                 "MPI_Type_extent",
                                 "MPI_Type_get_extent",
                                 "MPI_Type_lb",
                                 "MPI_Type_ub",
                                 "MPI_Op_create",
                                 "MPI_Op_free",
                                 "MPI_Comm_group",
                                 "MPI_Group_size",
                                 "MPI_Group_rank",
                                 "MPI_Group_incl",
                                 "MPI_Group_excl",
                                 "MPI_Group_free",
                                 "MPI_Comm_free",
                                 "MPI_Comm_set_errhandler",
                                 "MPI_Errhandler_set",
                                 "MPI_Comm_compare",
                                 "MPI_Cart_coords",
                                 "MPI_Cart_rank",
                                 "MPI_Cart_shift",
                                 "MPI_Cart_get",
                                 "MPI_Dims_create",
                                 "MPI_Attr_get",
                                 "MPI_Comm_get_attr",
                                 "MPI_Buffer_attach",
                                 "MPI_Pack",
                                 "MPI_Unpack",
                                 "MPI_Pack_size",
                                 "MPI_Pcontrol",
                                 "MPI_Info_create",
                                 "MPI_Info_set",
                                 "MPI_Info_free",
                                 "MPI_Comm_create_errhandler",
                                 "MPI_Add_error_class",
                                 "MPI_Error_class",
                                 "MPI_Alloc_mem",
                                 "MPI_Free_mem"};

/* Functions that differ between threads. */
const char *const differing[] = {"MPI_Wtime",
                                 "clock64",
                                 "globaltimer",
                                 "__nvvm_read_ptx_sreg_tid_x",
                                 "__nvvm_read_ptx_sreg_tid_y",
                                 "__nvvm_read_ptx_sreg_tid_z",
                                 "__nvvm_read_ptx_sreg_laneid",
                                 "__nvvm_read_ptx_sreg_warpid",
                                 "atomicAdd",
                                 "atomicSub",
                                 "atomicExch",
                                 "atomicMin",
                                 "atomicMax",
                                 "atomicInc",
                                 "atomicDec",
                                 "atomicCAS",
                                 "atomicAnd",
                                 "atomicOr",
                                 "atomicXor",
                                 "__shfl_sync",
                                 "__shfl_up_sync",
                                 "__shfl_down_sync",
                                 "__shfl_xor_sync",
                                 "__ballot_sync",
                                 "__any_sync",
                                 "__all_sync",
                                 "__match_any_sync",
                                 "__match_all_sync",
                                 "__reduce_add_sync"};

/* CUDA's values that all threads of a block share. */
const char *const of_block[] = {"__nvvm_read_ptx_sreg_ctaid_x",  "__nvvm_read_ptx_sreg_ctaid_y",
                                "__nvvm_read_ptx_sreg_ctaid_z",  "__nvvm_read_ptx_sreg_ntid_x",
                                "__nvvm_read_ptx_sreg_ntid_y",   "__nvvm_read_ptx_sreg_ntid_z",
                                "__nvvm_read_ptx_sreg_nctaid_x", "__nvvm_read_ptx_sreg_nctaid_y",
                                "__nvvm_read_ptx_sreg_nctaid_z", "__nvvm_read_ptx_sreg_warpsize"};

/* Calls on a communicator that make ranks meet; the number is that of the communicator. In those
 * of the second list no rank returns before all have called, if there is data. */
const struct {
    const char *name;
    int communicator;
} meetings[] = {{"MPI_Gather", 7},       {"MPI_Gatherv", 8},     {"MPI_Scatter", 7},
                {"MPI_Scatterv", 8},     {"MPI_Scan", 5},        {"MPI_Exscan", 5},
                {"MPI_Comm_split", 0},   {"MPI_Comm_create", 0}, {"MPI_Cart_create", 0},
                {"MPI_Graph_create", 0}, {"MPI_Cart_sub", 0},    {"MPI_File_open", 0}},
  barriers[] = {{"MPI_Allgather", 6}, {"MPI_Allgatherv", 7},     {"MPI_Alltoall", 6},
                {"MPI_Alltoallv", 8}, {"MPI_Reduce_scatter", 5}, {"MPI_Barrier", 0}};

const library_function others[] = {
    {"MPI_Comm_rank", status, 0, 1, source::divergent, -1},
    {"MPI_Comm_size", status, 0, 1, source::agreed, 0},
    {"MPI_Comm_dup", status, MEETS, 1, source::agreed, 0},
    {"MPI_Init", status, KEEPS_ARGV | KEEPS_ARGUMENTS, -1, none, -1},
    {"MPI_Init_thread", status, KEEPS_ARGV | KEEPS_ARGUMENTS, 3, same, -1},
    {"MPI_Type_size", status, 0, 1, same, -1},
    {"MPI_Initialized", status, 0, 0, unknown, -1}, /* some threads may be before MPI_Init() */
    {"MPI_Finalized", status, 0, 0, unknown, -1},
    {"MPI_Query_thread", status, 0, 0, same, -1},
    {"MPI_Bcast", status, MEETS, 0, source::agreed, 4},
    {"MPI_Reduce", status, MEETS, 1, unknown, 6},
    {"MPI_Allreduce", status, MEETS | BARRIER, 1, source::agreed, 5},
    {"MPI_Finalize", status, MEETS, -1, none, -1},
    {"MPI_Abort", none, LEAVES | FAILS, -1, none, -1},
    {"exit", none, LEAVES | FAILS | KEEPS_ARGV, -1, none, -1},
    {"_exit", none, LEAVES, -1, none, -1},
    {"_Exit", none, LEAVES, -1, none, -1},
    {"quick_exit", none, LEAVES, -1, none, -1},
    {"qsort", none, COMPARES, -1, none, -1},
    {"bsearch", unknown, COMPARES, -1, none, -1},
    {"abort", none, ENDS_ALL, -1, none, -1},
    {"__assert_fail", none, ENDS_ALL, -1, none, -1},
    {"__assertfail", none, ENDS_ALL, -1, none, -1},
    {"__trap", none, ENDS_ALL, -1, none, -1},
    {"__nvvm_trap", none, ENDS_ALL, -1, none, -1},
    {"__builtin_trap", none, ENDS_ALL, -1, none, -1},
    {"__syncwarp", none, MEETS, -1, none, -1},
    {"__nanosleep", none, EXCHANGES, -1, none, -1},
    {"__syncthreads", none, MEETS | BARRIER, -1, none, -1},
    {"__nvvm_bar0", none, MEETS | BARRIER, -1, none, -1},
    {"__nvvm_barrier0", none, MEETS | BARRIER, -1, none, -1},
    {"__syncthreads_count", same, MEETS | BARRIER, -1, none, -1},
    {"__syncthreads_and", same, MEETS | BARRIER, -1, none, -1},
    {"__syncthreads_or", same, MEETS | BARRIER, -1, none, -1}};

const allocation_function allocations[] = {
    {"malloc", 0, -1, true},         {"calloc", 1, 0, true},
    {"realloc", 1, -1, false},       {"reallocarray", 2, 1, false},
    {"aligned_alloc", 1, -1, false}, {"memalign", 1, -1, false},
    {"valloc", 0, -1, false},        {"posix_memalign", 2, -1, false},
    {"strdup", -1, -1, false},       {"strndup", -1, -1, false},
    {"MPI_Alloc_mem", 0, -1, false}, {"__nv_aligned_device_malloc", 0, -1, false}};

llvm::StringMap<library_function> all_functions()
{
    llvm::StringMap<library_function> all;
    auto add = [&all](const char *name, source result, unsigned effects = 0, int communicator = -1,
                      int out = -1) {
        all[name] = {name, result, effects, out, out < 0 ? none : unknown, communicator};
    };
    for (const char *name : pure) {
        add(name, source::arguments);
    }
    for (const char *name : readers) {
        add(name, source::arguments, KEEPS_ARGV);
    }
    for (const char *name : harmless) {
        add(name, unknown, KEEPS_ARGV);
    }
    for (const char *name : returning) {
        add(name, llvm::StringRef(name).take_front(4) == "MPI_" ? status : unknown);
    }
    for (const char *name : differing) {
        /* Atomics may end the wait of another thread; warp-level functions wait for lanes. */
        bool is_atomic = has_prefix(name, "atomic"), is_warp = has_suffix(name, "_sync");
        add(name, source::divergent, (is_atomic ? EXCHANGES : 0u) | (is_warp ? MEETS : 0u));
    }
    for (const char *name : of_block) {
        add(name, same);
    }
    for (const auto &f : meetings) { /* errors of files do not end the program */
        bool of_file = has_prefix(llvm::StringRef(f.name), "MPI_File_");
        add(f.name, of_file ? unknown : status, MEETS, f.communicator);
    }
    for (const auto &f : barriers) {
        add(f.name, status, MEETS | BARRIER, f.communicator);
    }
    for (const library_function &f : others) {
        all[f.name] = f;
    }
    for (const allocation_function &f : allocations) {
        add(f.name, unknown, ALLOCATES);
    }
    return all;
}

} // namespace

const library_function *find_library_function(llvm::StringRef name)
{
    static const llvm::StringMap<library_function> all = all_functions();
    auto found = all.find(name);
    if (found != all.end()) {
        return &found->second;
    }
    /* The rest of MPI, of which all sends, receives and one-sided operations exchange data. Errors
     * of files and of tools do not end the program; some functions return no status. */
    static const library_function message = {"MPI_", status, EXCHANGES, -1, none, -1},
                                  other = {"MPI_", unknown, EXCHANGES, -1, none, -1};
    bool is_other = has_prefix(name, "MPI_File_") || has_prefix(name, "MPI_T_") ||
                    has_prefix(name, "MPI_Aint_") || has_suffix(name, "_c2f") ||
                    has_suffix(name, "_f2c") || has_suffix(name, "_toint") ||
                    has_suffix(name, "_fromint");
    return name.take_front(4) != "MPI_" ? nullptr : is_other ? &other : &message;
}

const allocation_function *find_allocation_function(llvm::StringRef name)
{
    for (const allocation_function &f : allocations) {
        if (name == f.name) {
            return &f;
        }
    }
    return nullptr;
}

} // namespace rewrite
