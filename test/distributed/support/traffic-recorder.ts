/** Records the traffic of collectives by group, for tests of worlds without peers. */

import { type Traffic, trafficOf } from '../../../lib/core/traffic.js';
import {
  type ProcessGroup,
  watchCollectives,
} from '../../../lib/distributed/process-group/process-group.js';

/** The calls of one group, and their traffic on this rank. */
export interface GroupTraffic extends Traffic {
  readonly calls: number;
  /** Number of calls by public function. */
  readonly byName: Readonly<Record<string, number>>;
}

interface Counted {
  calls: number;
  sent: number;
  received: number;
  byName: Record<string, number>;
}

/** Counts the collectives of all ranks of this process by group, until it is stopped. */
export class TrafficRecorder {
  private readonly counted = new Map<ProcessGroup, Counted>();
  private readonly unwatch: () => void;

  constructor() {
    this.unwatch = watchCollectives(({ name, group, call }) => {
      const { sent, received } = trafficOf(call, group.size, group.rank);
      const counted = this.ofGroup(group);
      counted.calls++;
      counted.sent += sent;
      counted.received += received;
      counted.byName[name] = (counted.byName[name] ?? 0) + 1;
    });
  }

  private ofGroup(group: ProcessGroup): Counted {
    let counted = this.counted.get(group);
    if (counted === undefined) {
      counted = { calls: 0, sent: 0, received: 0, byName: {} };
      this.counted.set(group, counted);
    }
    return counted;
  }

  /** The groups that called collectives. */
  get groups(): ReadonlyMap<ProcessGroup, GroupTraffic> {
    return this.counted;
  }

  /** The sums over all groups. */
  total(): Traffic & { readonly calls: number } {
    const all = { calls: 0, sent: 0, received: 0 };
    for (const { calls, sent, received } of this.counted.values()) {
      all.calls += calls;
      all.sent += sent;
      all.received += received;
    }
    return all;
  }

  stop(): void {
    this.unwatch();
  }
}
