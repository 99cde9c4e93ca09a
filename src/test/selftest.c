/*-------------------------------------------------------------------------
 * selftest.c
 *	  Functions that test single modules, for sql/selftest.sql.
 *
 * Runs in a user's backend, and only in libraries made with SELFTEST=1.
 *
 * Results that depend on the arguments alone (messages, row keys) are returned
 * to SQL, which knows the expected result.  Modules with a state (the table of
 * dependencies, the queue) are driven by pseudo-random numbers here and
 * compared with a naive model; the first difference is an error.
 *
 * The queue needs a pool, so the backend takes a free place in the directory
 * and is receiver and writer in turn.  Whatever needs two processes (sleeping and
 * waking) is left to t/.  How many writers are awake is in selftest_awake.c, what is
 * flushed and reported in selftest_flush.c.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <sys/mman.h>

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timeout.h"

#include "../common/slot_consumer.h"
#include "../receiver/dependency.h"
#include "claim.h"
#include "commit_order.h"
#include "local_schema.h"
#include "message.h"
#include "owner.h"
#include "pool.h"
#include "queue.h"
#include "row_keys.h"
#include "slots.h"
#include "test_hooks.h"

PG_FUNCTION_INFO_V1(papply_selftest_dependency);
PG_FUNCTION_INFO_V1(papply_selftest_gate);
PG_FUNCTION_INFO_V1(papply_selftest_message);
PG_FUNCTION_INFO_V1(papply_selftest_mutate);
PG_FUNCTION_INFO_V1(papply_selftest_queue);
PG_FUNCTION_INFO_V1(papply_selftest_queue_oversize);
PG_FUNCTION_INFO_V1(papply_selftest_row_keys);
PG_FUNCTION_INFO_V1(papply_selftest_watch);

/* The origin of the test pool; no real one has it. */
#define TEST_ORIGIN PAPPLY_NO_ORIGIN

static pg_prng_state prng;

/* lower..upper */
static uint64
random_number(uint64 lower, uint64 upper)
{
	return pg_prng_uint64_range(&prng, lower, upper);
}

/*** dependency ***/

/*
 * selftest_dependency(seed, bits, keys, steps): random records and finds
 * against an array of the last writers.  Hashes are 0..keys-1, so that without
 * more keys than entries every answer has to be exact.  Returns how many
 * answers were greater than the model's.
 */
Datum
papply_selftest_dependency(PG_FUNCTION_ARGS)
{
	int			bits = PG_GETARG_INT32(1);
	uint64		nkeys = PG_GETARG_INT32(2);
	int			steps = PG_GETARG_INT32(3);
	PapplyDependency *table = papply_dependency_create(bits);
	uint64	   *model = palloc0(nkeys * sizeof(uint64));
	uint64		floor = PAPPLY_NO_SEQNO;
	uint64		seqno = PAPPLY_NO_SEQNO;
	int64		greater = 0;

	pg_prng_seed(&prng, PG_GETARG_INT32(0));
	EXPECT(papply_dependency_floor(table) == PAPPLY_NO_SEQNO);
	for (uint64 key = 0; key < nkeys; key++)
		EXPECT(papply_dependency_find(table, key) == PAPPLY_NO_SEQNO);

	for (int i = 0; i < steps; i++)
	{
		uint64		key = random_number(0, nkeys - 1);
		uint64		expected = Max(model[key], floor);
		uint64		found = papply_dependency_find(table, key);

		EXPECT(papply_dependency_floor(table) == floor);
		EXPECT(found >= expected);
		EXPECT(found <= seqno);
		if (found > expected)
			greater++;

		/* several records of one transaction have the same number */
		seqno += random_number(0, 1);
		if (seqno > 0 && random_number(1, steps) <= 5)
		{
			papply_dependency_record_all(table, seqno);
			floor = seqno;
		}
		else
		{
			papply_dependency_record(table, key, seqno);
			model[key] = seqno;
		}
	}
	PG_RETURN_INT64(greater);
}

/*** message ***/

/*
 * Memory that ends at an inaccessible page: a read beyond it crashes the
 * server, and the test fails.  The caller unmaps it.
 */
typedef struct Guarded
{
	char	   *pages;
	size_t		size;
	char	   *data;
} Guarded;

static Guarded
guarded_copy(const char *data, int length)
{
	size_t		page = sysconf(_SC_PAGESIZE);
	size_t		usable = TYPEALIGN(page, length + 1);
	Guarded		guarded;

	guarded.size = usable + page;
	guarded.pages = mmap(NULL, guarded.size, PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT(guarded.pages != MAP_FAILED);
	EXPECT(mprotect(guarded.pages + usable, page, PROT_NONE) == 0);
	guarded.data = guarded.pages + usable - length;
	memcpy(guarded.data, data, length);
	return guarded;
}

static PapplyChange change;		/* too large for the stack */

static void
show_tuple(StringInfo shown, const char *name, const PapplyTuple *tuple)
{
	appendStringInfo(shown, " %s", name);
	for (int i = 0; i < tuple->ncolumns; i++)
	{
		const PapplyColumn *column = &tuple->columns[i];

		appendStringInfo(shown, "%s%c:%.*s", i == 0 ? "(" : ", ", column->kind,
						 column->length, column->length > 0 ? column->data : "");
	}
	appendStringInfoString(shown, tuple->ncolumns == 0 ? "()" : ")");
}

static void
show_change(StringInfo shown)
{
	appendStringInfo(shown, "%c relation %u", change.type, change.remote_relid);
	if (change.has_old)
		show_tuple(shown, "old", &change.old_tuple);
	if (change.has_new)
		show_tuple(shown, "new", &change.new_tuple);
}

/*
 * Parse by the kind byte; shown may be NULL.  'S' stands for a command of the
 * replication protocol, of which the last byte becomes the end of the string.
 */
static void
parse_message(char *data, int length, StringInfo shown)
{
	PapplyMessage message = papply_message_read(data, length);
	PapplyBegin begin = {0};
	PapplyCommit commit;
	bool		cascade;
	bool		restart_sequences;

	if (papply_message_parse_first(&message, &begin) && shown)
		appendStringInfo(shown, "%c xid %u final_lsn %X/%X time " INT64_FORMAT,
						 message.kind, begin.xid, LSN_FORMAT_ARGS(begin.final_lsn), begin.commit_time);
	switch (message.kind)
	{
		case LOGICAL_REP_MSG_BEGIN:
		case LOGICAL_REP_MSG_BEGIN_PREPARE:
		case LOGICAL_REP_MSG_COMMIT_PREPARED:
		case LOGICAL_REP_MSG_ROLLBACK_PREPARED:
		case LOGICAL_REP_MSG_STREAM_COMMIT:
		case LOGICAL_REP_MSG_STREAM_PREPARE:
			break;
		case LOGICAL_REP_MSG_COMMIT:
		case LOGICAL_REP_MSG_PREPARE:
			papply_message_parse_commit(&message, &commit);
			if (shown)
				appendStringInfo(shown, "C commit_lsn %X/%X end_lsn %X/%X time " INT64_FORMAT,
								 LSN_FORMAT_ARGS(commit.commit_lsn),
								 LSN_FORMAT_ARGS(commit.end_lsn), commit.commit_time);
			break;
		case LOGICAL_REP_MSG_TRUNCATE:
			list_free(papply_message_read_truncate(data, length, &cascade, &restart_sequences));
			break;
		case LOGICAL_REP_MSG_RELATION:
			(void) papply_local_schema_of(data, length);
			break;
		case 'S':
			data[length - 1] = '\0';
			(void) papply_replication_command_omits_origins(data, "tap");
			break;
		default:
			papply_message_parse_change(&message, &change);
			if (shown)
				show_change(shown);
			break;
	}
}

/* Does it parse?  Errors other than a protocol violation are thrown. */
static bool
is_wellformed(char *data, int length)
{
	MemoryContext old_context = CurrentMemoryContext;
	volatile bool result = false;

	PG_TRY();
	{
		parse_message(data, length, NULL);
		result = true;
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_PROTOCOL_VIOLATION)
			PG_RE_THROW();
		MemoryContextSwitchTo(old_context);
		FlushErrorState();
	}
	PG_END_TRY();
	return result;
}

/* selftest_message(bytea): what the parser finds in a message. */
Datum
papply_selftest_message(PG_FUNCTION_ARGS)
{
	bytea	   *message = PG_GETARG_BYTEA_PP(0);
	Guarded		guarded = guarded_copy(VARDATA_ANY(message), VARSIZE_ANY_EXHDR(message));
	StringInfoData shown;

	initStringInfo(&shown);
	PG_TRY();
	{
		parse_message(guarded.data, VARSIZE_ANY_EXHDR(message), &shown);
	}
	PG_FINALLY();
	{
		munmap(guarded.pages, guarded.size);
	}
	PG_END_TRY();
	PG_RETURN_TEXT_P(cstring_to_text_with_len(shown.data, shown.len));
}

/*
 * selftest_mutate(bytea, seed, times): every truncation of a well-formed
 * message, and messages with some random bytes, cut at random.  Returns how
 * many truncations were accepted.
 */
Datum
papply_selftest_mutate(PG_FUNCTION_ARGS)
{
	bytea	   *message = PG_GETARG_BYTEA_PP(0);
	int			length = VARSIZE_ANY_EXHDR(message);
	int			times = PG_GETARG_INT32(2);
	int			accepted = 0;

	pg_prng_seed(&prng, PG_GETARG_INT32(1));
	for (int cut = 0; cut < length + times; cut++)
	{
		bool		is_truncated = cut < length;
		int			rest = is_truncated ? cut : random_number(1, length);
		Guarded		guarded = guarded_copy(VARDATA_ANY(message), rest);

		if (is_truncated)
			accepted += is_wellformed(guarded.data, rest);
		else
		{
			for (int i = random_number(1, 4); i > 0; i--)
				guarded.data[random_number(0, rest - 1)] = random_number(0, 255);
			(void) is_wellformed(guarded.data, rest);
		}
		munmap(guarded.pages, guarded.size);
	}
	PG_RETURN_INT32(accepted);
}

/*** row keys ***/

/* Describe the table as a publisher with the same table would. */
static LogicalRepRelation *
describe_as_publisher(Relation rel)
{
	LogicalRepRelation *remote = palloc0(sizeof(LogicalRepRelation));
	Bitmapset  *identity = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_IDENTITY_KEY);

	remote->nspname = "public";
	remote->relname = RelationGetRelationName(rel);
	remote->replident = rel->rd_rel->relreplident;
	remote->natts = RelationGetNumberOfAttributes(rel);
	for (int i = 0; i < remote->natts; i++)
		if (remote->replident == REPLICA_IDENTITY_FULL ||
			bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, identity))
			remote->attkeys = bms_add_member(remote->attkeys, i);
	return remote;
}

/*
 * selftest_row_keys(regclass, bytea): hashes of a change of that table, all of
 * whose columns are published; with -1 in front when they are incomplete.
 */
Datum
papply_selftest_row_keys(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	bytea	   *bytes = PG_GETARG_BYTEA_P_COPY(1);
	PapplyMessage message = papply_message_read(VARDATA(bytes), VARSIZE(bytes) - VARHDRSZ);
	AttrNumber *attnums = palloc(MaxTupleAttributeNumber * sizeof(AttrNumber));
	Datum		elements[1 + PAPPLY_MAX_HASHES];
	int			nelements = 0;
	PapplyRowKeys keys;
	PapplyHashes hashes;

	for (int i = 0; i < MaxTupleAttributeNumber; i++)
		attnums[i] = i;
	papply_row_keys_init(&keys, describe_as_publisher(rel));
	papply_row_keys_add_unique(&keys, rel, attnums);
	papply_message_parse_change(&message, &change);
	papply_row_keys_compute(&keys, &change, &hashes);
	table_close(rel, AccessShareLock);

	if (hashes.is_incomplete)
		elements[nelements++] = Int64GetDatum(-1);
	for (int i = 0; i < hashes.count; i++)
		elements[nelements++] = Int64GetDatum((int64) hashes.hashes[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(elements, nelements, INT8OID, sizeof(int64),
										  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/*** queue ***/

/* The number of the writer that the backend acts as. */
#define TEST_WRITER 0

/* Transactions that the model remembers; more than there are slots. */
#define MODEL_LENGTH 1024

/* Contents of the queue: everything of a transaction follows from its number. */
typedef struct QueueModel
{
	int			steps;
	uint64		last;			/* put into the queue */
	uint64		claimed;
	uint64		committed;
	int			nentries[MODEL_LENGTH];

	/* how often it happened */
	uint64		wraps;
	uint64		full;
	uint64		no_slot;
	uint64		batches;
} QueueModel;

static void
begin_queue_test(int size_kb)
{
	int			save_size = papply_queue_size;

	papply_slots_attach_receiver(PAPPLY_SELFTEST_SUBID);
	EXPECT(papply_pool_acquire(GetUserId(), TEST_ORIGIN));
	pg_atomic_write_u64(&papply_pool->wanted_writers, 2);
	papply_queue_size = size_kb;
	papply_queue_create();
	papply_queue_size = save_size;
}

static void
end_queue_test(void)
{
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
	papply_queue_detach();
	if (papply_pool != NULL)
		papply_pool_release();
	papply_slots_detach_receiver();
}

void
papply_selftest_with_queue(int size_kb, void (*drive) (void *model), void *model)
{
	PG_TRY();
	{
		begin_queue_test(size_kb);
		drive(model);
	}
	PG_CATCH();
	{
		end_queue_test();
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_queue_test();
}

static uint32
entry_length(uint64 seqno, int number, uint32 max_length)
{
	uint64		mixed = seqno * 7919 + number * 104729;

	/* mostly small, and now and then as large as can be */
	if (mixed % 53 == 0)
		return max_length - mixed % 3;
	return (mixed * mixed) % (mixed % 5 == 0 ? max_length / 8 : 300);
}

static uint32
max_entry_length(void)
{
	uint32		length = papply_pool->queue.ring_bytes / 2;

	while (!papply_queue_can_hold(length))
		length--;
	return length;
}

static void
fill_entry(char *data, uint32 length, uint64 seqno, int number)
{
	for (uint32 i = 0; i < length; i++)
		data[i] = (char) (seqno * 31 + number * 7 + i);
}

/* Some are, and occasionally enough that writers claim none while slots are reused. */
static bool
is_by_leader(uint64 seqno)
{
	return seqno % 13 == 0 || seqno / 256 % 4 == 3;
}

/* Receiver: add a transaction.  Returns false if it does not fit. */
static bool
put_transaction(QueueModel *model, char *data, int max_entries)
{
	uint32		max_length = max_entry_length();
	int			wanted = random_number(0, max_entries);
	int			nentries = 0;
	uint64		seqno;

	if (!papply_queue_begin((TransactionId) model->last + 1000, model->last + 1, &seqno))
	{
		model->no_slot++;
		return false;
	}
	EXPECT(seqno == ++model->last);
	EXPECT(papply_queue_last_seqno() == seqno);
	while (nentries < wanted)
	{
		uint32		length = entry_length(seqno, nentries, max_length);

		EXPECT(papply_queue_can_hold(length));
		if (!papply_queue_has_space(length))
		{
			model->full++;
			break;
		}
		fill_entry(data, length, seqno, nentries);
		papply_queue_append(PAPPLY_ENTRY_MESSAGE, data, length, nentries + 1, seqno / 2);
		nentries++;
	}
	model->nentries[seqno % MODEL_LENGTH] = nentries;
	if (is_by_leader(seqno))
		papply_queue_leave_to_leader(seqno, PAPPLY_BY_LEADER, PAPPLY_COUNT_FALLBACK_TABLE);
	papply_queue_end(seqno * 10);
	return nentries == wanted;
}

static void
check_transaction(const QueueModel *model, char *data, uint64 seqno)
{
	PapplyTransaction *txn = papply_queue_transaction(seqno);
	uint64		position = txn->start_position;
	uint32		max_length = max_entry_length();

	EXPECT(txn->remote_xid == (TransactionId) seqno - 1 + 1000);
	EXPECT(txn->final_lsn == seqno);
	EXPECT(txn->remote_end_lsn == seqno * 10);
	EXPECT(txn->local_end_lsn == InvalidXLogRecPtr);
	for (int i = 0; i < model->nentries[seqno % MODEL_LENGTH]; i++)
	{
		uint32		length = entry_length(seqno, i, max_length);
		PapplyEntry *entry = papply_queue_read(&position);

		EXPECT(entry != NULL);
		EXPECT(entry->kind == PAPPLY_ENTRY_MESSAGE);
		EXPECT(entry->length == length);
		EXPECT(entry->relation_version == i + 1);
		EXPECT(entry->dependency == seqno / 2);
		fill_entry(data, length, seqno, i);
		EXPECT(memcmp(PapplyEntryData(entry), data, length) == 0);
	}
	EXPECT(position == txn->end_position);
}

/*
 * The receiver: apply the oldest ones that are left to it.  Returns false if
 * there are none.
 */
static bool
apply_fallbacks(QueueModel *model)
{
	uint64		committed = model->committed;

	for (; model->committed < model->last && is_by_leader(model->committed + 1); model->committed++)
		papply_commit_order_advance(model->committed + 1, model->committed + 1, model->last * 100);
	model->claimed = model->committed;
	return model->committed > committed;
}

/* Writer: claim, read and commit.  Returns false if there is nothing to claim. */
static bool
take_transactions(QueueModel *model, char *data)
{
	int			max = random_number(1, 40);
	uint64		first;
	uint64		last;

	if (apply_fallbacks(model))
		return false;
	EXPECT(papply_queue_backlog() >= model->last - model->claimed);
	papply_pool_waiter = TEST_WRITER;
	if (!papply_claim(max, &first, &last))
	{
		EXPECT(model->claimed == model->last);
		papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
		return false;
	}
	EXPECT(first == model->claimed + 1);
	EXPECT(last >= first && last <= model->last);
	EXPECT(last - first + 1 <= max);
	if (last > first)
		model->batches++;
	for (uint64 seqno = first; seqno <= last; seqno++)
		check_transaction(model, data, seqno);
	model->claimed = last;
	papply_commit_order_advance(first, last, last * 100);
	model->committed = last;
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
	EXPECT(papply_pool_committed() == last);
	return true;
}

/* Receiver: release what is committed, in order. */
static void
release_committed(QueueModel *model)
{
	PapplyTransaction *txn;

	while ((txn = papply_queue_oldest_committed()) != NULL)
	{
		uint64		seqno = papply_queue_released_seqno() + 1;

		EXPECT(seqno <= model->committed);
		EXPECT(txn->final_lsn == seqno);
		EXPECT(txn->local_end_lsn >= seqno * 100);
		papply_queue_release();
		EXPECT(papply_queue_released_seqno() == seqno);
	}
	EXPECT(papply_queue_released_seqno() == model->committed);
}

static void
drive_queue(void *arg)
{
	QueueModel *model = arg;
	char	   *data = palloc(papply_pool->queue.ring_bytes);

	EXPECT(papply_pool->queue.transaction_slots < MODEL_LENGTH);
	EXPECT(papply_queue_backlog() == 0);
	for (int i = 0; i < model->steps; i++)
	{
		/* sometimes until it is full, and sometimes until it is empty */
		int			puts = random_number(0, 3) == 0 ? MODEL_LENGTH : random_number(0, 10);
		int			takes = random_number(0, 3) == 0 ? MODEL_LENGTH : random_number(0, 3);
		int			max_entries = random_number(0, 5);

		while (puts-- > 0 && put_transaction(model, data, max_entries))
			;
		while (takes-- > 0 && take_transactions(model, data))
			;
		release_committed(model);
	}
	while (model->committed < model->last)
		(void) take_transactions(model, data);
	release_committed(model);
	model->wraps = papply_queue_transaction(model->last)->end_position / papply_pool->queue.ring_bytes;
	EXPECT(model->committed == model->last);
	EXPECT(papply_queue_has_space(max_entry_length()));
	pfree(data);
}

/*
 * selftest_queue(seed, size_kb, steps): random transactions through a queue,
 * every byte of which is looked at.  Returns what happened more than once.
 */
Datum
papply_selftest_queue(PG_FUNCTION_ARGS)
{
	QueueModel	model = {0};

	pg_prng_seed(&prng, PG_GETARG_INT32(0));
	model.steps = PG_GETARG_INT32(2);
	papply_selftest_with_queue(PG_GETARG_INT32(1), drive_queue, &model);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("wrap-around %s, ring full %s, no slot %s, batches %s",
											  model.wraps > 1 ? "yes" : "no",
											  model.full > 1 ? "yes" : "no",
											  model.no_slot > 1 ? "yes" : "no",
											  model.batches > 1 ? "yes" : "no")));
}

/* Append entries to the open transaction until there is no space. */
static int
fill_ring(const char *data, uint32 length)
{
	int			save_waiter = papply_pool_waiter;
	int			appended = 0;

	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
	while (papply_queue_has_space(length))
	{
		papply_queue_append(PAPPLY_ENTRY_MESSAGE, data, length, 1, PAPPLY_NO_SEQNO);
		appended++;
	}
	papply_queue_publish_open();
	papply_pool_waiter = save_waiter;
	return appended;
}

/* Receiver: take back what the writer, as which the backend acts, has read. */
static bool
reclaim_read(void)
{
	bool		is_reclaimed;

	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
	is_reclaimed = papply_owner_reclaim_read();
	papply_pool_waiter = TEST_WRITER;
	return is_reclaimed;
}

/* A transaction larger than the ring: written and read by turns. */
static void
check_oversize(char *data, uint32 length)
{
	uint64		seqno;
	uint64		first;
	uint64		last;
	uint64		position;
	int			read = 0;
	int			appended;

	EXPECT(papply_queue_begin(1000, 1, &seqno));
	EXPECT(!papply_queue_open_is_published());
	appended = fill_ring(data, length);
	EXPECT(papply_queue_open_is_published());
	EXPECT(papply_queue_open_size() <= papply_pool->queue.ring_bytes);
	EXPECT(papply_queue_unpublished_bytes() == 0);
	EXPECT(!papply_owner_reclaim_read());	/* not claimed yet */

	papply_pool_waiter = TEST_WRITER;
	EXPECT(papply_claim(32, &first, &last));
	EXPECT(first == seqno && last == seqno);
	position = papply_queue_transaction(seqno)->start_position;
	EXPECT(!reclaim_read());	/* nothing is read */

	/* its writer may go back as long as nothing was taken back */
	(void) papply_queue_read(&position);
	papply_queue_consumed(position);
	EXPECT(papply_queue_rewind(seqno));
	position = papply_queue_transaction(seqno)->start_position;
	EXPECT(!reclaim_read());

	for (int round = 0; round < 20; round++)
	{
		while (papply_queue_read(&position) != NULL)
			read++;
		EXPECT(read == appended);
		papply_queue_consumed(position);
		EXPECT(reclaim_read());
		EXPECT(!papply_queue_rewind(seqno));
		appended += fill_ring(data, length);
		EXPECT(appended > read);
	}
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
	EXPECT(papply_queue_open_size() > 10 * papply_pool->queue.ring_bytes);
}

/* Claim, expecting these transactions. */
static void
expect_claim(uint64 want_first, uint64 want_last)
{
	uint64		first;
	uint64		last;

	EXPECT(papply_claim(32, &first, &last));
	EXPECT(first == want_first && last == want_last);
	for (uint64 seqno = first; seqno <= last; seqno++)
		EXPECT(papply_queue_is_exclusive(seqno) == papply_queue_is_exclusive(first));
}

/*
 * What is left to the leader is for the receiver: no writer claims it.  What
 * is exclusive is claimed with others of its kind only.
 */
static void
check_marks(void)
{
	const char	marks[] = "-n-ss-";
	uint64		seqno[lengthof(marks) - 1];
	uint64		first;
	uint64		last;

	for (int i = 0; i < lengthof(seqno); i++)
	{
		EXPECT(papply_queue_begin(2000 + i, 2 + i, &seqno[i]));
		papply_queue_append(PAPPLY_ENTRY_MESSAGE, "x", 1, 0, PAPPLY_NO_SEQNO);
		if (marks[i] == 'n')
			papply_queue_leave_to_leader(seqno[i], PAPPLY_BY_LEADER, PAPPLY_COUNT_FALLBACK_TABLE);
		if (marks[i] == 's')
			papply_queue_set_exclusivity(seqno[i], PAPPLY_EXCLUSIVE);
		papply_queue_end(2 + i);
	}
	papply_pool_waiter = TEST_WRITER;
	expect_claim(seqno[0], seqno[0]);
	expect_claim(seqno[2], seqno[2]);
	expect_claim(seqno[3], seqno[4]);
	expect_claim(seqno[5], seqno[5]);
	EXPECT(!papply_claim(32, &first, &last));
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
}

/*
 * A writer that continues does not clear the mark of another writer that waits for data,
 * and one whose mark is replaced is woken.
 */
static void
check_data_marks(void)
{
	uint64		nowhere = PG_INT64_MAX;

	papply_pool_waiter = TEST_WRITER + 1;
	EXPECT(papply_queue_want_data(nowhere));
	papply_queue_got_data();
	EXPECT(pg_atomic_read_u64(&papply_pool->queue.data_waiter) == 0);
	EXPECT(papply_queue_want_data(nowhere));
	papply_pool_waiter = TEST_WRITER;
	papply_queue_got_data();
	EXPECT(pg_atomic_read_u64(&papply_pool->queue.data_waiter) == TEST_WRITER + 2);

	papply_pool->writers[TEST_WRITER + 1].proc = MyProc;
	ResetLatch(MyLatch);
	EXPECT(papply_queue_want_data(nowhere));
	EXPECT(MyLatch->is_set);
	papply_queue_got_data();
	papply_pool->writers[TEST_WRITER + 1].proc = NULL;
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
}

static void
drive_oversize(void *arg)
{
	char	   *data = palloc0(papply_pool->queue.ring_bytes);

	EXPECT(!papply_queue_can_hold(papply_pool->queue.ring_bytes));
	EXPECT(papply_queue_can_hold(papply_pool->queue.ring_bytes / 4));
	check_oversize(data, 1000);
	papply_queue_end(1);
	papply_commit_order_advance(1, 1, 100);
	EXPECT(papply_queue_oldest_committed() != NULL);
	papply_queue_release();
	check_marks();
	check_data_marks();
}

/* selftest_queue_oversize(): one transaction of many times the ring's size. */
Datum
papply_selftest_queue_oversize(PG_FUNCTION_ARGS)
{
	papply_selftest_with_queue(64, drive_oversize, NULL);
	PG_RETURN_VOID();
}

/*** commit order ***/

static void
drive_gate(void *arg)
{
	papply_pool_waiter = TEST_WRITER;
	papply_commit_order_enter(1);
	papply_pool_close();
	papply_commit_order_enter(1);
}

/* selftest_gate(): one commit passes the gate, and the next one finds it closed. */
Datum
papply_selftest_gate(PG_FUNCTION_ARGS)
{
	papply_selftest_with_queue(64, drive_gate, NULL);
	PG_RETURN_VOID();
}

static void
commit_next(void)
{
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
	papply_commit_order_advance(papply_pool_committed() + 1, papply_pool_committed() + 1,
								InvalidXLogRecPtr);
	papply_pool_waiter = TEST_WRITER;
}

/* Wait for a transaction, when what commit_next() commits is committed after a sleep. */
static void
wait_and_sleep(uint64 seqno)
{
	uint64		sleeps = papply_selftest_sleeps();

	SetLatch(MyLatch);
	papply_commit_order_wait(seqno, PAPPLY_WRITER_WAIT_TURN);
	EXPECT(papply_selftest_sleeps() > sleeps);
}

static void
drive_watch(void *arg)
{
	static const PapplyWaitChecks commit_after_sleep = {.after_sleep = commit_next};
	TimeoutId	commit = RegisterTimeout(USER_TIMEOUT, commit_next);
	uint64		sleeps;
	int			usual_us;

	papply_pool_waiter = TEST_WRITER;
	sleeps = papply_selftest_sleeps();
	papply_selftest_watch_us = 600 * 1000000;
	enable_timeout_after(commit, 1);
	papply_commit_order_wait(1, PAPPLY_WRITER_WAIT_TURN);
	EXPECT(papply_selftest_sleeps() == sleeps);
	usual_us = papply_selftest_watched_us;

	/* too late, again and again: it watches for a shorter time */
	papply_selftest_watch_us = 1;
	papply_commit_order_set_checks(&commit_after_sleep);
	for (uint64 seqno = 2; seqno < 20; seqno++)
		wait_and_sleep(seqno);
	EXPECT(papply_selftest_watched_us < usual_us / 10);
	papply_commit_order_set_checks(NULL);
}

/*
 * selftest_watch(): a process that waits for the next commit first watches for it, as
 * long as that pays.
 */
Datum
papply_selftest_watch(PG_FUNCTION_ARGS)
{
	papply_selftest_with_queue(64, drive_watch, NULL);
	papply_selftest_watch_us = 0;
	PG_RETURN_VOID();
}
