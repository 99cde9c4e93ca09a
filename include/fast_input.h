/*-------------------------------------------------------------------------
 * room: writer
 *
 * fast_input.h
 *	  From text to values of common types, without their input functions.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FAST_INPUT_H
#define PAPPLY_FAST_INPUT_H

/*
 * Make a value from text.  Returns false where the input function has to be
 * called; else the value is the one that it would return.
 */
typedef bool (*PapplyFastInput) (const char *data, int length, Datum *value);

/* In place of that input function, with that type modifier; NULL: nothing is. */
extern PapplyFastInput papply_fast_input_of(Oid input_function, int32 typmod);

#endif							/* PAPPLY_FAST_INPUT_H */
