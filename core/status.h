/* The first error of a context, and how the library reports one. */
#ifndef TERN_CORE_STATUS_H
#define TERN_CORE_STATUS_H

#include <stdarg.h>
#include <tern/base.h>

#define TERN_ERROR_SIZE 1024

/* Records the error unless there is one already; returns `status`, so that callers can write
 * return tern_fail(ctx, TERN_E_FORMAT, "%s: header of %llu bytes in a file of %llu", …). A context that is NULL records nothing. Thread
 * safe. */
enum tern_status tern_fail(struct tern_context *ctx, enum tern_status status, const char *fmt, ...) TERN_PRINTF(3, 4);

/* What made a call of the system or of a library fail: memory, where errno says so, else `status`. errno is 0 before the call. */
enum tern_status tern_errno_status(enum tern_status status);

/* Puts "prefix: " before the recorded message; for callers that know more of the place. */
void tern_fail_prefix(struct tern_context *ctx, const char *fmt, ...) TERN_PRINTF(2, 3);

/* True while an error is recorded, and of no context (NULL): a function that asks for this first needs no other guard. */
bool tern_failed(const struct tern_context *ctx);

/* tern_error_clear, but an error that another thread has recorded stays. */
void tern_error_clear_own(struct tern_context *ctx);

/* Sends a message to the log callback. Thread safe if the callback is. */
void tern_message(struct tern_context *ctx, int level, const char *fmt, ...) TERN_PRINTF(3, 4);

/* Reports progress; does nothing without a callback. */
void tern_report(struct tern_context *ctx, const char *stage, int64_t done, int64_t total, double seconds);

/* The thread's name: an address that no other thread has while it lives. */
const char *tern_this_thread(void);

/* TERN_E_CANCELLED (recorded) when the cancel callback says so, else TERN_OK; TERN_E_INVALID when it left scopes open. */
enum tern_status tern_check_cancel(struct tern_context *ctx);
/* Whether this thread is in that callback. */
bool tern_is_asked(const struct tern_context *ctx);

/* Lifts the budget, for all threads, or puts it back where this thread has lifted it; whether it had. In this thread's callbacks it holds:
 * what they make is not what it was lifted for. */
bool tern_budget_lift(struct tern_context *ctx, bool lift);

/* Seconds from an arbitrary, monotonic origin. */
double tern_now(void);

#endif
