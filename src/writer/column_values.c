/*-------------------------------------------------------------------------
 * column_values.c
 *	  Input functions and defaults of a table's columns, prepared once.
 *
 * Runs in a writer.
 *
 * The core apply loop looks up input functions, and plans defaults, for every
 * row.  Here they are kept with the target (target.c) until an invalidation
 * says that they may have changed.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "column_values.h"

void
papply_values_prepare_inputs(PapplyTarget *target, const AttrMap *attnums)
{
	TupleDesc	desc = RelationGetDescr(target->rel);

	target->inputs = palloc0(desc->natts * sizeof(PapplyColumnInput));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		PapplyColumnInput *input = &target->inputs[i];
		Oid			function;

		input->column = att->attisdropped ? -1 : attnums->attnums[i];
		if (input->column < 0)
			continue;
		getTypeInputInfo(att->atttypid, &function, &input->text_param);
		fmgr_info_cxt(function, &input->text_function, target->context);
		input->fast_input = papply_fast_input_of(function, att->atttypmod);

		/* these return the text unchanged, if they do not fail */
		input->is_text = function == F_TEXTIN || function == F_VARCHARIN ||
			function == F_BPCHARIN || function == F_JSON_IN;
	}
}

void
papply_values_prepare_defaults(PapplyTarget *target)
{
	TupleDesc	desc = RelationGetDescr(target->rel);

	target->default_columns = palloc(desc->natts * sizeof(int));
	target->default_exprs = palloc(desc->natts * sizeof(ExprState *));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Expr	   *expr;

		if (att->attisdropped || att->attgenerated || target->inputs[i].column >= 0)
			continue;
		expr = (Expr *) build_column_default(target->rel, i + 1);
		if (expr == NULL)
			continue;
		expr = expression_planner(expr);
		target->has_mutable_default |= contain_mutable_functions((Node *) expr);
		target->default_columns[target->ndefaults] = i;
		target->default_exprs[target->ndefaults++] = ExecInitExpr(expr, NULL);
	}
}
