/*-------------------------------------------------------------------------
 * compare.c
 *	  Compare what two servers return for the same range.
 *
 * Pure: knows no server.
 *
 * Rows come ordered by the hash of the key and then by that of the row, so equal rows
 * are next to each other.  Those that only one side has are kept until the hash of the
 * key changes.  Then two rows with the same key are one row that was changed, and the
 * others are missing on the other side.  If a key is there very often, so that more
 * than MAX_KEPT rows would have to be kept, they count as missing without looking for
 * changed ones.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "compare.h"

#define MAX_KEPT 1000

static bool
is_equal_bucket(const Bucket *left, const Bucket *right)
{
	return left->rows == right->rows && strcmp(left->sum, right->sum) == 0;
}

int
compare_buckets(const Bucket *left, int nleft, const Bucket *right, int nright,
				PQExpBuffer different)
{
	int			found = 0;
	int			l = 0;
	int			r = 0;

	while (l < nleft || r < nright)
	{
		bool		has_left = l < nleft && (r >= nright || left[l].number <= right[r].number);
		bool		has_right = r < nright && (l >= nleft || right[r].number <= left[l].number);
		int			number = has_left ? left[l].number : right[r].number;

		if (!(has_left && has_right && is_equal_bucket(&left[l], &right[r])))
			appendPQExpBuffer(different, "%s%d", found++ > 0 ? "," : "", number);
		l += has_left;
		r += has_right;
	}
	return found;
}

void
free_row(Row *row, int ncolumns)
{
	for (int i = 0; i < ncolumns; i++)
		free(row->columns[i]);
	free(row->columns);
	free(row->key);
	free(row);
}

/* Rows with the same hash of the key that the other side lacks, as far as is known. */
typedef struct Kept
{
	Row		   *rows[MAX_KEPT];
	int			count;
} Kept;

struct Comparison
{
	TakeDifference take;
	void	   *arg;
	int			ncolumns;
	bool		is_wanted[SIDES];
	Row		   *next[SIDES];	/* NULL: wanted, or there is none */
	long long	key_hash;		/* of the last rows */
	Kept		kept[SIDES];
};

/* Return a kept row of the subscriber with the same key, which is no more kept. */
static Row *
take_same_key(Kept *kept, const char *key)
{
	for (int i = 0; key != NULL && i < kept->count; i++)
	{
		Row		   *row = kept->rows[i];

		if (row != NULL && row->key != NULL && strcmp(row->key, key) == 0)
		{
			kept->rows[i] = NULL;
			return row;
		}
	}
	return NULL;
}

/* Report all kept rows. */
static void
flush(Comparison *comparison)
{
	Kept	   *kept = comparison->kept;

	for (int i = 0; i < kept[PUBLISHER].count; i++)
	{
		Row		   *row = kept[PUBLISHER].rows[i];
		Row		   *other = take_same_key(&kept[SUBSCRIBER], row->key);

		comparison->take(comparison->arg, row, other);
		free_row(row, comparison->ncolumns);
		if (other != NULL)
			free_row(other, comparison->ncolumns);
	}
	for (int i = 0; i < kept[SUBSCRIBER].count; i++)
	{
		Row		   *row = kept[SUBSCRIBER].rows[i];

		if (row == NULL)
			continue;
		comparison->take(comparison->arg, NULL, row);
		free_row(row, comparison->ncolumns);
	}
	kept[PUBLISHER].count = kept[SUBSCRIBER].count = 0;
}

static void
keep(Comparison *comparison, Side side, Row *row)
{
	Kept	   *kept = &comparison->kept[side];

	if (kept->count == MAX_KEPT)
		flush(comparison);
	kept->rows[kept->count++] = row;
}

/* Compare two rows by their order; no row comes after all others. */
static int
order_of(const Row *left, const Row *right)
{
	if (left == NULL || right == NULL)
		return (left == NULL) - (right == NULL);
	if (left->key_hash != right->key_hash)
		return left->key_hash < right->key_hash ? -1 : 1;
	return (left->hash > right->hash) - (left->hash < right->hash);
}

Comparison *
begin_comparison(TakeDifference take, void *arg, int ncolumns)
{
	Comparison *comparison = pg_malloc0(sizeof(Comparison));

	comparison->take = take;
	comparison->arg = arg;
	comparison->ncolumns = ncolumns;
	comparison->is_wanted[PUBLISHER] = comparison->is_wanted[SUBSCRIBER] = true;
	return comparison;
}

bool
wants_row(const Comparison *comparison, Side side)
{
	return comparison->is_wanted[side];
}

/* Compare the next rows of both sides; the first of them, or both, are wanted again. */
static void
advance(Comparison *comparison)
{
	Row		  **next = comparison->next;
	int			order = order_of(next[PUBLISHER], next[SUBSCRIBER]);
	long long	key_hash = next[order <= 0 ? PUBLISHER : SUBSCRIBER]->key_hash;

	if (key_hash != comparison->key_hash)
		flush(comparison);
	comparison->key_hash = key_hash;
	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
	{
		if (side == PUBLISHER ? order > 0 : order < 0)
			continue;
		if (order == 0)
			free_row(next[side], comparison->ncolumns);
		else
			keep(comparison, side, next[side]);
		next[side] = NULL;
		comparison->is_wanted[side] = true;
	}
}

void
give_row(Comparison *comparison, Side side, Row *row)
{
	Row		  **next = comparison->next;

	next[side] = row;
	comparison->is_wanted[side] = false;
	if (!wants_row(comparison, PUBLISHER) && !wants_row(comparison, SUBSCRIBER) &&
		(next[PUBLISHER] != NULL || next[SUBSCRIBER] != NULL))
		advance(comparison);
}

void
end_comparison(Comparison *comparison)
{
	flush(comparison);
	free(comparison);
}
