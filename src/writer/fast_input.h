/*-------------------------------------------------------------------------
 * fast_input.h
 *	  From text to values of common types, without their input functions.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FAST_INPUT_H
#define PAPPLY_FAST_INPUT_H

/*
 * Convert a text, which ends with a zero byte, to a value.  Returns false if the
 * input function must be called; otherwise *value is what that function would
 * return.
 */
typedef bool (*PapplyFastInput) (const char *input, Datum *value);

/*
 * Return the replacement for this input function with this type modifier, or
 * NULL if there is none.
 */
extern PapplyFastInput papply_fast_input_of(Oid input_function, int32 typmod);

#endif							/* PAPPLY_FAST_INPUT_H */
