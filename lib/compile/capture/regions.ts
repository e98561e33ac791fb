/**
 * Regions of a graph that backward computes again: the functions of `autograd.recomputed`. Their
 * nodes carry tags, and an effect at their start says how a run op by op computes them again.
 */
import type { RecomputedRegion } from '../../core/backend.js';
import type { AnyOp } from '../../core/op.js';
import { checkOneOf } from '../../core/options.js';
import { currentGenerator, drawsAgain, type Generator } from '../../core/random.js';
import type { Tensor } from '../../core/tensor.js';
import type { EffectName } from '../graph/effects.js';
import type { Node, Value } from '../graph/node.js';
import { Memory } from '../partition/memory.js';
import { PREFER_RECOMPUTE, PREFER_SAVE, RECOMPUTED, regionTag, SAVE } from '../partition/tags.js';
import type { Recorder } from './recorder.js';

/** The tags of a node, by what a policy says of its op. */
const POLICY_TAGS: Readonly<Record<string, readonly string[]>> = {
  MUST_SAVE: [SAVE],
  PREFER_SAVE: [PREFER_SAVE],
  MUST_RECOMPUTE: [],
  PREFER_RECOMPUTE: [PREFER_RECOMPUTE],
};

/** The effects that only make values, so that backward may repeat them. */
const REPEATABLE: ReadonlySet<EffectName | null> = new Set<EffectName>([
  'recompute',
  'draw',
  'seed',
  'keepRng',
  'restoreRng',
  'localShard',
  'distribute',
  'ownVersion',
  'applyFunction',
  'setAsynchronous',
  'registerHook',
  'registerOpaque',
]);

const NONE: ReadonlySet<string> = new Set();

/** The regions of one capture. */
export class Regions {
  /** The tags of what is recorded now. */
  tags = NONE;
  /** The regions that nest around what is recorded now, the inner one last. */
  private readonly open: RecomputedRegion[] = [];
  /** The first node of each region, with its tag. */
  private readonly starts = new Map<Node, string>();

  /** Runs a function whose calls are a region. */
  record<R>(recorder: Recorder, region: RecomputedRegion, run: () => R): R {
    const before = this.tags;
    const name = this.starts.size;
    const tag = regionTag(name);
    recorder.attributes.record(recorder);
    const { run: again, settings } = region;
    const params = { region: name, run: again, settings };
    this.starts.set(recorder.addEffect('recompute', { params }), tag);
    this.tags = new Set([...before, tag]);
    this.open.push(region);
    try {
      const result = run();
      recorder.attributes.record(recorder); // what the region has set is tagged, and refused
      return result;
    } finally {
      this.open.pop();
      this.tags = before;
    }
  }

  /** Runs a function of a whole step, whose backward runs it again. */
  recordTwice<A extends readonly unknown[], R>(
    { run, settings }: RecomputedRegion,
    fn: (...args: A) => R,
    args: A,
  ): R {
    let isFirst = true;
    const tagged = (...given: readonly unknown[]): R => {
      const before = this.tags;
      if (!isFirst) this.tags = new Set([...before, RECOMPUTED]);
      isFirst = false;
      try {
        return fn(...(given as A));
      } finally {
        this.tags = before;
      }
    };
    return run(tagged, args, settings, drawsAgain()) as R;
  }

  /**
   * Runs `record`, which records a call, with the tag that the policy of the region gives it.
   *
   * @throws ArgumentError for an answer that is no policy
   */
  withPolicy<R>(op: AnyOp, inputs: readonly Tensor[], into: Tensor | null, record: () => R): R {
    const policy = this.open.at(-1)?.policy ?? null;
    if (policy === null || into !== null || op.mutates !== null || op.view !== null)
      return record();
    const before = this.tags;
    this.tags = new Set([...before, ...tagsOf(policy(op.name, ...inputs))]);
    try {
      return record();
    } finally {
      this.tags = before;
    }
  }

  /** Refuses draws that a second run would make anew. */
  checkDraw(recorder: Recorder, generator: Generator): void {
    if (this.open.length === 0) return;
    if (this.open.some(({ preservesRng }) => !preservesRng))
      recorder.unsupported('code that backward runs again drew random numbers anew');
    if (generator !== currentGenerator())
      recorder.unsupported('code that backward runs again drew from a generator of its own');
  }

  /**
   * Refuses regions whose second run would do more than compute values again, or from other values.
   */
  check(recorder: Recorder): void {
    if (this.starts.size === 0) return;
    const { graph } = recorder;
    const memory = new Memory(graph);
    for (const [start, tag] of this.starts) {
      const region = new Set(graph.nodes.filter((node) => node.tags.has(tag)));
      const changes = (value: Value): boolean =>
        'node' in value &&
        !region.has(memory.base(value).node) &&
        memory.lastWrite(value) >= memory.positionOf(start);
      for (const node of region) {
        const refused = notRepeatable(node, memory, changes);
        if (refused !== null) recorder.unsupported(refused, undefined, node.origin);
      }
    }
  }
}

/** Why backward must not run the node again; `changes`: whether a value does, beside the region. */
function notRepeatable(
  node: Node,
  memory: Memory,
  changes: (value: Value) => boolean,
): string | null {
  if (node.kind === 'effect' && !REPEATABLE.has(node.effect))
    return `code that backward runs again has the effect ${node.effect}`;
  const isKept = node.tags.has(SAVE) || node.tags.has(PREFER_SAVE);
  if (isKept && node.metas.some((_, output) => memory.writes({ node, output }) > 0))
    return `a result of ${node.name}, which a policy keeps for backward, was changed in place`;
  return node.reads.some(changes)
    ? 'a tensor that is read by code which backward runs again was changed in it or after it'
    : null;
}

/** @throws ArgumentError for what is no policy */
function tagsOf(policy: string): readonly string[] {
  checkOneOf('recomputed', 'what policy returns', policy, Object.keys(POLICY_TAGS));
  return POLICY_TAGS[policy] as readonly string[];
}

/** Records a function that backward runs again. */
export function recordRegion<A extends readonly unknown[], R>(
  recorder: Recorder,
  region: RecomputedRegion,
  fn: (...args: A) => R,
  args: A,
): R {
  // A run calls functions of the program again, and they call this.
  if (!recorder.recordsEffects) return fn(...args);
  if (recorder.isWholeStep) return recorder.regions.recordTwice(region, fn, args);
  if (!recorder.repeatsCalls || recorder.isHookBody)
    recorder.unsupported('a function was called that backward runs again');
  return recorder.regions.record(recorder, region, () => fn(...args));
}

/** Records what backward runs again in the capture of a step: its draws are those of forward. */
export function recordAgain<T>(recorder: Recorder, run: () => T): T {
  const { draws } = recorder;
  if (!recorder.isWholeStep) recorder.unsupported('the state of a random generator was set');
  const before = draws.isAgain;
  draws.isAgain = true;
  try {
    return run();
  } finally {
    draws.isAgain = before;
  }
}
