/*-------------------------------------------------------------------------
 * session_code.c
 *	  Triggers whose functions may rely on state of their session.
 *
 * Runs in a user's backend.
 *
 * Writers have sessions of their own.  Some state of a session is carried from
 * one transaction to the next by leaving transactions to the apply worker
 * (session_locks.c, session_settings.c, session_sequences.c).  For other
 * state, nothing tells a writer that it is used.  So the view of tables names
 * the triggers whose functions contain a word that is used for it.  This is a
 * hint: a function may use the word for something else, and functions that it
 * calls are not searched.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_proc.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "apply_mode.h"
#include "session_code.h"

static const char *const words[] = {
	"_SHARED",					/* PL/Perl, PL/Tcl */
	"GD", "SD",					/* PL/Python, PL/Tcl */
	"HOLD",						/* a cursor WITH HOLD */
	"PREPARE",
	"currval", "lastval",
	"dblink_connect", "dblink_connect_u",
	"pg_backend_pid",
	"setseed"
};

/* A character of names in SQL and in procedural languages. */
static bool
is_of_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		c == '_' || IS_HIGHBIT_SET(c);
}

/* Is there such a word in the source, in upper or lower case? */
static bool
contains(const char *source, const char *word)
{
	int			length = strlen(word);

	for (const char *at = source; *at != '\0'; at++)
	{
		if (pg_strncasecmp(at, word, length) == 0 && !is_of_name(at[length]) &&
			(at == source || !is_of_name(at[-1])))
			return true;
	}
	return false;
}

static const char *
find_word(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	const char *found = NULL;
	bool		is_null;
	char	   *body;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	body = TextDatumGetCString(SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &is_null));
	for (int i = 0; i < lengthof(words) && found == NULL; i++)
		if (contains(body, words[i]))
			found = words[i];
	ReleaseSysCache(tuple);
	return found;
}

static bool
check_trigger(Form_pg_trigger trigger, void *context)
{
	PapplySessionCode *code = context;

	code->word = find_word(trigger->tgfoid);
	if (code->word == NULL)
		return false;
	code->trigger = trigger->tgname;
	code->function = trigger->tgfoid;
	return true;
}

bool
papply_session_code_find(Oid relid, PapplySessionCode *code)
{
	return papply_table_find_trigger(relid, check_trigger, code);
}
