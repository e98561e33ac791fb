/** Recorded timelines: when ranks have run each node of a graph, by marks in their streams. */

import { PendingResults } from '../../compile/estimate/tasks.js';
import { communicationWork, computeWork, runsNothing } from '../../compile/estimate/work.js';
import type { RunValue } from '../../compile/graph/effects.js';
import type { Step } from '../../compile/graph/graph-module.js';
import type { Node } from '../../compile/graph/node.js';
import { type StepWatch, stepWatch } from '../../compile/graph/step-watch.js';
import { isCollective, isView, isWait } from '../../compile/graph/traits.js';
import { StreamClock, type StreamMark } from '../../compile/schedule/stream-clock.js';
import type { CollectiveGroup } from '../../core/collective.js';
import { type Device, deviceByCode } from '../../core/device.js';
import { ArgumentError } from '../../core/errors.js';
import { layers } from '../../core/hooks.js';
import { type LateResult, lateResultOf } from '../../core/late-results.js';
import { checkFunction, checkSynchronous, optionsOf, unexpected } from '../../core/options.js';
import { currentRuntime } from '../../core/rank-runtime.js';
import { Tensor } from '../../core/tensor.js';
import { streamDone } from '../../distributed/engines/native-engine.js';
import { Timeline, type TimelineEntry } from './timeline.js';

/** Options of {@link recordTimeline}. */
export interface RecordTimelineOptions {
  /** The title of tables and pictures. */
  readonly title?: string;
}

const NAME = 'recordTimeline';

/**
 * Runs `fn` and records when this rank runs each node of its graphs: a call of a step that
 * `spmd.compile` has made, or of a compiled function. Times are those of the streams, from the
 * start of the first node; `called` is when the host came to a node. A kernel starts when the
 * kernel before it and the collectives whose results it uses have ended. A collective starts when
 * the kernels before it in the graph and the collective before it have ended, and includes the wait
 * for ranks that come later.
 *
 * Waits for everything that this rank called before. Each rank records its own timeline, and a call
 * of several ranks is one that all of them make. Commands that are encoded together
 * (`enableInductor`) are one entry. A recorded run is a little slower, other runs are not.
 *
 * @throws ArgumentError for an asynchronous function and for one that runs no graph, or one without
 * values (FakeTensorMode); what `fn` throws
 * @example
 * const fn = compile((t: Tensor) => t.sin().sum());
 * const seen = await recordTimeline(() => fn(x));
 * console.log(`${seen}`);
 */
export async function recordTimeline(
  fn: () => unknown,
  options: RecordTimelineOptions = {},
): Promise<Timeline> {
  checkFunction(NAME, 'fn', fn);
  const { title = 'a run' } = optionsOf(NAME, options, 'title');
  if (typeof title !== 'string') throw unexpected(NAME, 'title', 'a string', title);
  checkValues();
  await allDone([...devicesInUse()].map(({ currentStream }) => currentStream));
  const recording = new Recording();
  try {
    recording.run(fn);
    await allDone(recording.streams);
    return new Timeline(title, null, recording.entries());
  } finally {
    recording.dispose();
  }
}

/** @throws ArgumentError under FakeTensorMode */
function checkValues(): void {
  if (layers.backend.sendsCommands) return;
  throw new ArgumentError(
    `${NAME}: tensors without values take no time. timeline(graph) estimates it`,
    { op: NAME },
  );
}

/** The devices of this rank that have run something. */
function devicesInUse(): Device[] {
  const { devices } = currentRuntime();
  return devices.filter((device) => device !== undefined && device.currentStream >= 0);
}

async function allDone(streams: Iterable<number>): Promise<void> {
  const { turns } = currentRuntime();
  for (const stream of streams) {
    const done = streamDone(stream, NAME);
    await (turns === null ? done : turns.wait(NAME, done));
  }
}

/** A node that has run, or nodes whose commands were encoded together. */
interface Span {
  readonly nodes: readonly Node[];
  /** When the host called it, by `performance.now()`. */
  readonly called: number;
  /** All of them have passed when it starts. */
  readonly from: readonly StreamMark[];
  readonly to: StreamMark;
  /** The collectives whose results it uses. */
  readonly waitsFor: readonly Span[];
  readonly isCollective: boolean;
  /** The result, if it comes later than the collective is done. */
  late: LateResult | null;
}

class Recording implements StepWatch {
  private readonly clock = new StreamClock();
  private readonly spans: Span[] = [];
  private readonly pending = new PendingResults<Span>();

  /** The streams that were marked. */
  get streams(): Set<number> {
    return new Set(this.spans.flatMap(({ from, to }) => [...from, to].map(({ stream }) => stream)));
  }

  run(fn: () => unknown): void {
    const outer = stepWatch.current;
    stepWatch.current = this;
    try {
      checkSynchronous(NAME, fn(), 'only what it runs before its first await would be recorded');
    } finally {
      stepWatch.current = outer;
    }
    if (this.spans.length === 0)
      throw new ArgumentError(
        `${NAME}: fn ran no graph. Pass a function that calls a step of spmd.compile`,
        { op: NAME },
      );
  }

  around(steps: readonly Step[], values: readonly RunValue[], run: () => void): void {
    checkValues();
    const nodes = steps.map(({ node }) => node);
    const [step] = steps as [Step];
    const waitsFor = [...new Set(nodes.flatMap((node) => this.pending.readBy(node)))];
    if (isCollective(step.node)) this.collective(step, values, waitsFor, run);
    else if (nodes.every(runsNothing) && !nodes.some(isWait)) run();
    else this.kernels(nodes, waitsFor, run);
    const [first] = waitsFor;
    if (first === undefined) return;
    for (const node of nodes) if (isView(node) || isWait(node)) this.pending.add(node, first);
  }

  private kernels(nodes: readonly Node[], waitsFor: readonly Span[], run: () => void): void {
    const device = deviceOf(nodes);
    const called = performance.now();
    const from = [this.clock.mark(device)];
    run();
    const to = this.clock.mark(device);
    this.spans.push({ nodes, called, from, to, waitsFor, isCollective: false, late: null });
  }

  private collective(
    step: Step,
    values: readonly RunValue[],
    waitsFor: readonly Span[],
    run: () => void,
  ): void {
    const { node } = step;
    const device = deviceOf([node]);
    const { group } = node.params as { readonly group: CollectiveGroup };
    const lane = group.streamFor?.(device) ?? device.currentStream;
    const called = performance.now();
    const from = [this.clock.mark(device), this.clock.mark(device, lane)];
    run();
    const to = this.clock.mark(device, lane);
    const result = values[step.at];
    const late = result instanceof Tensor ? lateResultOf(result) : null;
    const span = { nodes: [node], called, from, to, waitsFor, isCollective: true, late };
    this.spans.push(span);
    this.pending.add(node, span);
  }

  /** The times, once all streams are done. */
  entries(): TimelineEntry[] {
    const ends = new Map<Span, number>();
    const origin = this.clock.time((this.spans[0] as Span).from[0] as StreamMark);
    const seconds = (ms: number): number => (ms - origin) / 1e3;
    const at = (mark: StreamMark): number => seconds(this.clock.time(mark));
    let communicated = 0;
    return this.spans.map((span) => {
      const { nodes, from, to, waitsFor, late } = span;
      const reached = Math.max(...from.map(at), span.isCollective ? communicated : 0);
      const done = late === null ? at(to) : seconds(late.arrival());
      const ready = Math.max(reached, ...waitsFor.map((other) => ends.get(other) ?? 0));
      const isWaiting = nodes.every(isWait);
      // What a wait waits for may have its time from another clock.
      const end = Math.max(done, isWaiting ? ready : reached);
      const start = isWaiting ? end : Math.min(ready, end);
      const waited = span.isCollective ? 0 : start - reached;
      ends.set(span, end);
      if (span.isCollective) communicated = end;
      return { ...workOf(span), called: Math.max(0, seconds(span.called)), start, end, waited };
    });
  }

  dispose(): void {
    this.clock.dispose();
  }
}

function deviceOf(nodes: readonly Node[]): Device {
  for (const { metas, inputs } of nodes) {
    const [meta] = metas;
    if (meta !== undefined) return meta.device;
    for (const value of inputs)
      if ('node' in value) return value.node.metas[value.output]?.device ?? deviceByCode(0);
  }
  return deviceByCode(0);
}

/** The name and the work of an entry. */
function workOf({
  nodes,
  isCollective: communicates,
}: Span): Pick<TimelineEntry, 'name' | 'lane' | 'flops' | 'bytes'> {
  const [first, last] = [nodes[0] as Node, nodes.at(-1) as Node];
  if (communicates)
    return {
      name: first.name,
      lane: 'communication',
      flops: 0,
      bytes: communicationWork(first).sentBytes,
    };
  const works = nodes.map(computeWork);
  const sum = (of: 'flops' | 'bytes'): number =>
    works.reduce((total, work) => total + (work?.[of] ?? 0), 0);
  return {
    name: nodes.length === 1 ? first.name : `${first.name} … ${last.name}`,
    lane: 'compute',
    flops: sum('flops'),
    bytes: sum('bytes'),
  };
}
