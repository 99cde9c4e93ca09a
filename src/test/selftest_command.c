/*-------------------------------------------------------------------------
 * selftest_command.c
 *	  Test how commands of the replication protocol are read, for
 *	  sql/selftest.sql.
 *
 * Runs in a user's backend, and only in libraries made with SELFTEST=1.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "../common/slot_consumer.h"

#include "fmgr.h"
#include "utils/builtins.h"


PG_FUNCTION_INFO_V1(papply_selftest_omits_origins);

/*
 * selftest_omits_origins(command, slot_name): is the command one that omits what
 * has a replication origin?
 */
Datum
papply_selftest_omits_origins(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(papply_replication_command_omits_origins(text_to_cstring(PG_GETARG_TEXT_PP(0)),
															text_to_cstring(PG_GETARG_TEXT_PP(1))));
}
