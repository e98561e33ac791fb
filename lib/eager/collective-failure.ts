/** What native code says for programs of a collective that failed, as `details` of the error. */
import type { CollectiveDetails } from '../core/errors.js';

/** Between the reports of several failures, of which one caused the next; and between the fields of one. See native/comm/describe.h. */
const [REPORT, FIELD] = ['\x1e', '\x1f'];
const FIELDS_OF_RANK = 4;

interface Call {
  readonly rank: number;
  readonly isBlamed: boolean;
  readonly op: string;
  readonly where: string;
}

interface Report {
  readonly group: string;
  readonly sequence: number;
  readonly calls: readonly Call[];
}

function readReport(text: string): Report {
  const [group = '', sequence = '0', ...fields] = text.split(FIELD);
  const calls: Call[] = [];
  for (let i = 0; i + FIELDS_OF_RANK <= fields.length; i += FIELDS_OF_RANK) {
    const [rank, blamed, op, where] = fields.slice(i, i + FIELDS_OF_RANK) as [string, string, string, string];
    calls.push({ rank: Number(rank), isBlamed: blamed === '1', op, where });
  }
  return { group, sequence: Number(sequence), calls };
}

/** Null where nothing was said. @internal */
export function collectiveDetails(facts: string | undefined): CollectiveDetails | null {
  if (facts === undefined) return null;
  const reports = facts.split(REPORT).map(readReport);
  const group = reports.findLast((report) => report.group !== '')?.group ?? '';
  const own = reports.filter((report) => report.group === group || report.group === '');
  const ranks = new Set<number>();
  const calls = new Map<number, { rank: number; op: string; where: string }>();
  let op = '';
  for (const call of own.flatMap((report) => report.calls)) {
    const { rank, isBlamed, where } = call;
    if (isBlamed) ranks.add(rank);
    else if (call.op !== '') op = call.op;
    if (call.op !== '') calls.set(rank, { rank, op: call.op, where });
  }
  return { op: op || ([...calls.values()][0]?.op ?? ''), group, sequence: Math.max(...own.map(({ sequence }) => sequence)), ranks: [...ranks], calls: [...calls.values()] };
}
