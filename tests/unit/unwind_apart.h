/* SPDX-License-Identifier: MIT
 *
 * Other names for the functions of unwind.c, which a program with a planted bug compiles itself and
 * which the library has, too.
 */
#define ga_unwind               unwind_planted
#define ga_unwind_ready         unwind_planted_ready
#define ga_unwind_takes_no_lock unwind_planted_takes_no_lock
#define ga_unwind_memo_new      unwind_planted_memo_new
#define ga_unwind_memo_delete   unwind_planted_memo_delete
#define ga_unwind_memo_frames   unwind_planted_memo_frames
