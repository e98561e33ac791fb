/** Collectives of the CPU over a connection of any speed, to see what overlaps with them. */
import { StreamClock, type StreamMark } from '../compile/schedule/stream-clock.js';
import { DistributedError } from '../core/errors.js';
import { addLateResult, type LateResult } from '../core/late-results.js';
import { checkNumber, optionsOf } from '../core/options.js';
import { currentRuntime } from '../core/rank-runtime.js';
import { trafficOf } from '../core/traffic.js';
import {
  type CollectiveRecord,
  watchCollectives,
} from '../distributed/process-group/process-group.js';

/** The connection of {@link slowCollectives}. */
export interface SlowConnection {
  /** Seconds of each collective, whatever its size. */
  latency: number;
  /** Bytes a second that a rank sends. */
  bandwidth: number;
}

const OP = 'slowCollectives';

/**
 * Slows the collectives of this process down, for tests and measurements of overlap: the result of
 * one on CPU tensors comes so much later, and one after the other. Nothing is computed for it
 * meanwhile: ops that follow run, until a wait of a compiled graph waits for the result. Ops
 * outside of graphs do not wait. Every rank calls it.
 *
 * @returns a function that ends it
 * @throws ArgumentError for a connection that is none; DistributedError for `local` ranks, of which
 * none may block
 * @example
 * await initProcessGroup();
 * const restore = slowCollectives({ latency: 0.01, bandwidth: 25e6 });
 * await allReduce(ones([2]), { asyncOp: true }).wait();
 * restore();
 * await destroyProcessGroup();
 */
export function slowCollectives(connection: SlowConnection): () => void {
  const { latency, bandwidth } = optionsOf(OP, connection, 'latency bandwidth');
  checkNumber(OP, 'latency', latency, { from: 0 });
  checkNumber(OP, 'bandwidth', bandwidth, { above: 0 });
  if (currentRuntime().world.isShared)
    throw new DistributedError(
      `${OP}: ranks that share a process must not block. Run them as processes: ` +
        "launch(…, { mode: 'process' })",
      { op: OP },
    );
  const wire = new Wire(latency, bandwidth);
  const stop = watchCollectives((record) => wire.carry(record));
  return () => {
    stop();
    wire.close();
  };
}

/** Carries one result after the other. */
class Wire {
  private readonly latency: number;
  private readonly bandwidth: number;
  private readonly clock = new StreamClock();
  /** Results whose time is not known yet, in the order of their collectives. */
  private readonly inFlight: Delivery[] = [];
  private freeAt = 0;

  constructor(latency: number, bandwidth: number) {
    this.latency = latency;
    this.bandwidth = bandwidth;
  }

  carry({ group, call }: CollectiveRecord): void {
    const { output } = call;
    if (output === null || output.device.type !== 'cpu' || group.size === 1) return;
    const { sent } = trafficOf(call, group.size, group.place);
    const seconds = this.latency + sent / this.bandwidth;
    const delivery = new Delivery(this, this.clock.mark(output.device), 1e3 * seconds);
    this.inFlight.push(delivery);
    for (const each of call.parts ?? [{ output }]) addLateResult(each.output, delivery);
  }

  /** Finds the times of all results up to this one. */
  settle(last: Delivery): void {
    for (let next = this.inFlight.shift(); next !== undefined; next = this.inFlight.shift()) {
      this.freeAt = Math.max(this.freeAt, this.clock.time(next.sent)) + next.ms;
      this.clock.free(next.sent);
      next.at = this.freeAt;
      if (next === last) return;
    }
  }

  close(): void {
    const last = this.inFlight.at(-1);
    if (last !== undefined) this.settle(last);
    this.clock.dispose();
  }
}

class Delivery implements LateResult {
  private readonly wire: Wire;
  /** When the engine is done with the collective. */
  readonly sent: StreamMark;
  readonly ms: number;
  at: number | null = null;

  constructor(wire: Wire, sent: StreamMark, ms: number) {
    this.wire = wire;
    this.sent = sent;
    this.ms = ms;
  }

  arrival(): number {
    if (this.at === null) this.wire.settle(this);
    return this.at as number;
  }

  wait(): void {
    const ms = this.arrival() - performance.now();
    if (ms > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  }
}
