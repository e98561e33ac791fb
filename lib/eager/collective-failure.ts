/** What native code says for programs of a collective that failed, as `details` of the error. */
import type { CollectiveDetails } from '../core/errors.js';

/**
 * Between the reports of several failures, of which one caused the next; and between the fields of
 * one. See native/comm/messages.h.
 */
const [REPORT, FIELD] = ['\x1e', '\x1f'];
const FIELDS_OF_CALL = 3;

interface Report {
  readonly group: string;
  readonly sequence: number;
  readonly op: string;
  readonly ranks: readonly number[];
  readonly calls: readonly { readonly rank: number; readonly op: string; readonly where: string }[];
}

/** `1-3,7` */
function readRanks(list: string): number[] {
  if (list === '') return [];
  return list.split(',').flatMap((run) => {
    const [first = 0, last = first] = run.split('-').map(Number);
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  });
}

function readReport(text: string): Report {
  const [group = '', sequence = '0', op = '', ranks = '', ...fields] = text.split(FIELD);
  const calls = [];
  for (let i = 0; i + FIELDS_OF_CALL <= fields.length; i += FIELDS_OF_CALL) {
    const [callers, called, where] = fields.slice(i, i + FIELDS_OF_CALL) as [
      string,
      string,
      string,
    ];
    calls.push(...readRanks(callers).map((rank) => ({ rank, op: called, where })));
  }
  return { group, sequence: Number(sequence), op, ranks: readRanks(ranks), calls };
}

/**
 * What programs read of ranks and calls, as native code passes it on behind the words of a reason.
 * @internal
 */
export function factsOf({ ranks, calls }: Pick<CollectiveDetails, 'ranks' | 'calls'>): string {
  const ofNoCall = ['', 0, ''];
  return (
    REPORT +
    [...ofNoCall, ranks.join(), ...calls.flatMap(({ rank, op, where }) => [rank, op, where])].join(
      FIELD,
    )
  );
}

/** A text without them. @internal */
export const wordsOf = (text: string): string => text.split(REPORT, 1)[0] as string;

/** Null where nothing was said. `op` is what the caller knows of it. @internal */
export function collectiveDetails(facts: string | undefined, op: string): CollectiveDetails | null {
  if (facts === undefined) return null;
  const reports = facts.split(REPORT).map(readReport);
  const group = reports.findLast((report) => report.group !== '')?.group ?? '';
  // The first cause comes first: what is said last is the present call.
  const own = reports.filter((report) => report.group === group || report.group === '');
  const calls = new Map(own.flatMap((report) => report.calls).map((call) => [call.rank, call]));
  return {
    op:
      own.findLast((report) => report.op !== '')?.op ?? (op || ([...calls.values()][0]?.op ?? '')),
    group,
    sequence: Math.max(...own.map(({ sequence }) => sequence)),
    // Who ended a group because of another is not what went wrong.
    ranks: reports.find((report) => report.ranks.length > 0)?.ranks ?? [],
    calls: [...calls.values()],
  };
}
