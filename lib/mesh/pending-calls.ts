/**
 * What ranks of one process wait for of each other. JavaScript runs one of them at a time: if it waited for a collective that
 * another rank has yet to call, that rank would never run. So each rank has the list of its calls that may not be complete: one
 * is done with when every member has called it and has nothing left before it.
 */
import { DistributedError } from '../core/errors.js';

interface Call {
  readonly name: string;
  readonly group: string;
  readonly members: readonly number[];
  readonly missing: Set<number>;
}

/** @internal */
export class PendingCalls {
  private readonly open = new Map<string, Call>();
  private readonly ofRank: Call[][];
  private readonly messages = new Map<string, number>();
  private readonly gone = new Set<number>();

  constructor(worldSize: number) {
    this.ofRank = Array.from({ length: worldSize }, () => []);
  }

  /** A rank calls the group's `number`-th collective; `members` are ranks of the world. */
  enter(rank: number, group: string, number: number, members: readonly number[], name: string): void {
    const key = `${group}#${number}`;
    let call = this.open.get(key);
    if (call === undefined) {
      call = { name, group, members, missing: new Set(members.filter((member) => !this.gone.has(member))) };
      this.open.set(key, call);
    }
    call.missing.delete(rank);
    (this.ofRank[rank] as Call[]).push(call);
    if (call.missing.size > 0) return;
    this.open.delete(key);
    this.settle(call);
  }

  /** The same for a message between two ranks, which may send several: they are counted by direction. */
  enterMessage(from: number, to: number, caller: number, group: string, name: string): void {
    const channel = `${group}:${from}>${to}`;
    const counted = `${channel}:${caller}`;
    const number = this.messages.get(counted) ?? 0;
    this.messages.set(counted, number + 1);
    this.enter(caller, channel, number, [from, to], name);
  }

  /** Takes a call that nothing stands before any more off all lists, and what stood right behind it. */
  private settle(first: Call): void {
    const next = [first];
    for (let call = next.pop(); call !== undefined; call = next.pop()) {
      const lists = call.members.map((rank) => this.ofRank[rank] as Call[]);
      if (call.missing.size > 0 || lists.some((list) => list[0] !== call)) continue;
      for (const list of lists) {
        list.shift();
        if (list.length > 0) next.push(list[0] as Call);
      }
    }
  }

  /** Calls of ranks that are gone fail by themselves: nobody waits for them here. */
  leave(rank: number): void {
    this.gone.add(rank);
    for (const [key, call] of [...this.open]) {
      if (!call.missing.delete(rank) || call.missing.size > 0) continue;
      this.open.delete(key);
      this.settle(call);
    }
  }

  /** Whether everything that the rank has called can complete without JavaScript. */
  isClear(rank: number): boolean {
    return (this.ofRank[rank] as Call[]).length === 0;
  }

  /** @throws DistributedError if the value may need ranks that have not run yet */
  check(rank: number, op: string): void {
    const call = (this.ofRank[rank] as Call[])[0];
    if (call === undefined) return;
    const absent = [...call.missing].sort((a, b) => a - b);
    const who = absent.length > 0 ? `rank ${absent.join(', ')} ${absent.length === 1 ? 'has' : 'have'} not called yet` : 'waits for other calls';
    throw new DistributedError(
      `${op}: waiting here would block ranks that share this process: the ${call.name} of group "${call.group}" that came before ${who}. Use \`await t.read()\` or \`await t.itemAsync()\` instead.`,
      { op, rank, group: call.group, collective: call.name, missing: absent },
    );
  }
}
