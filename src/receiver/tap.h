/*-------------------------------------------------------------------------
 * tap.h
 *	  Pass messages to the core apply loop, and notify observers.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TAP_H
#define PAPPLY_TAP_H

#include "message.h"
#include "remote_relation.h"

/* What the core apply loop is doing. */
typedef struct PapplyTap
{
	/*
	 * The message that it is processing, until it asks for the next one, set
	 * before papply_tap_note().  Its data stay in place until then.  kind is
	 * 0 if there is none.
	 */
	PapplyMessage message;
	PapplyBegin begin;			/* of the newest transaction */
	bool		is_within;		/* it has not got the last message of that */
	XLogRecPtr	end_lsn;		/* it has got that message, but not asked for
								 * the next one; else InvalidXLogRecPtr */
	const ErrorData *error;		/* with PAPPLY_TAP_ERROR only */
} PapplyTap;

extern PapplyTap papply_tap;

/*** observers ***/

typedef enum PapplyTapEvent
{
	PAPPLY_TAP_START,			/* a stream of the publisher; no transaction
								 * is open */
	PAPPLY_TAP_BEGIN,			/* a transaction: its first message */
	PAPPLY_TAP_CHANGE,			/* INSERT, UPDATE, DELETE or TRUNCATE in it */
	PAPPLY_TAP_MESSAGE,			/* any message, after one of these, if
								 * papply_tap_needs.messages */
	PAPPLY_TAP_END,				/* the transaction is committed or skipped, or
								 * was prepared */
	PAPPLY_TAP_ERROR			/* a message of the server is about to be
								 * logged, of any level */
} PapplyTapEvent;

#define PAPPLY_TAP_EVENTS (PAPPLY_TAP_ERROR + 1)

/* At BEGIN, CHANGE and MESSAGE, the core apply loop is about to get tap->message. */
typedef void (*PapplyTapObserver) (const PapplyTap *tap);

/* Have this function called for each such event, after those that came before. */
extern void papply_tap_observe(PapplyTapEvent event, PapplyTapObserver observer);

#define PAPPLY_TAP_MAX_OBSERVERS 5

/* Of each event, up to the first NULL. */
extern PapplyTapObserver papply_tap_observers[PAPPLY_TAP_EVENTS][PAPPLY_TAP_MAX_OBSERVERS + 1];

/* The caller is this file, or where a stream starts. */
static inline void
papply_tap_notify(PapplyTapEvent event)
{
	for (PapplyTapObserver *observer = papply_tap_observers[event]; *observer != NULL; observer++)
		(*observer) (&papply_tap);
}

/* What observers need; they set it. */
typedef struct PapplyTapNeeds
{
	bool		whole;			/* transactions that are not streamed while
								 * they are in progress; set at START */
	bool		messages;		/* each message of this transaction; cleared
								 * when the next one begins */
	bool		prepared_ends;	/* the core apply loop must end prepared
								 * transactions */
} PapplyTapNeeds;

extern PapplyTapNeeds papply_tap_needs;

/* Is the core apply loop processing a message of a transaction? */
static inline bool
papply_tap_is_applying(void)
{
	return papply_tap.message.kind != 0 &&
		(papply_tap.is_within || papply_tap.end_lsn != InvalidXLogRecPtr);
}

/*
 * Return the relation that its message changes a row of.  NULL: it is no such
 * message, or the relation is not known.
 */
extern PapplyRemoteRelation *papply_tap_relation(void);

/*** messages ***/

/* Begin to observe errors of this process. */
extern void papply_tap_attach(void);

static inline void
papply_tap_note_begin(void)
{
	papply_tap.end_lsn = papply_tap.begin.end_lsn;
	papply_tap.is_within = papply_tap.end_lsn == InvalidXLogRecPtr;
	papply_tap_needs.messages = false;
	papply_tap_notify(PAPPLY_TAP_BEGIN);
}

/*
 * Called before the core apply loop gets papply_tap.message, unless that is part
 * of a chunk of a streamed transaction.  Inline, because without a pool it takes
 * most of the library's time.
 */
static inline void
papply_tap_note(void)
{
	switch (papply_tap.message.kind)
	{
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
		case LOGICAL_REP_MSG_TRUNCATE:
			if (papply_tap.is_within)
				papply_tap_notify(PAPPLY_TAP_CHANGE);
			break;
		case LOGICAL_REP_MSG_COMMIT:
		case LOGICAL_REP_MSG_PREPARE:
			papply_tap.end_lsn = papply_message_end_lsn(&papply_tap.message);
			papply_tap.is_within = false;
			break;
		case LOGICAL_REP_MSG_BEGIN:
			papply_message_parse_begin(&papply_tap.message, &papply_tap.begin);
			papply_tap_note_begin();
			break;
		default:
			if (papply_message_parse_first(&papply_tap.message, &papply_tap.begin))
				papply_tap_note_begin();
	}
	if (unlikely(papply_tap_needs.messages))
		papply_tap_notify(PAPPLY_TAP_MESSAGE);
}

/* The core apply loop asks for its next message. */
static inline void
papply_tap_next(void)
{
	papply_tap.message.kind = 0;
}

/* So it is done with the transaction, if that has ended. */
static inline void
papply_tap_end(void)
{
	if (papply_tap.end_lsn == InvalidXLogRecPtr)
		return;
	papply_tap_notify(PAPPLY_TAP_END);
	papply_tap.end_lsn = InvalidXLogRecPtr;
}

/*
 * Frame a message for the core apply loop as walrcv_receive() does.  Return
 * its length.  The memory stays valid until the next call.  A definition has
 * the local schema that papply_local_schema_of() returned for it, which gets
 * its present name; for other messages the schema is InvalidOid.
 */
extern int	papply_tap_frame(const PapplyMessage *message, Oid schema, char **buffer);
extern int	papply_tap_keepalive(XLogRecPtr remote_lsn, bool reply_requested, char **buffer);

#endif							/* PAPPLY_TAP_H */
