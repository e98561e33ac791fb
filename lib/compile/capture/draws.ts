/** Random draws and seeds of a capture. Each draw is a value of the graph. */
import type { AnyOp } from '../../core/op.js';
import type { DrawParams, DrawSource, Generator } from '../../core/random.js';
import type { Node } from '../graph/node.js';
import type { Recorder } from './recorder.js';

export class Draws {
  /** Functions that give generators the state that they had before the capture. */
  private readonly restores = new Map<Generator, () => void>();
  private next: DrawSource | null = null;
  /** Draws so far, by their random state; null for the state of calls that need no numbers. */
  private readonly nodes = new Map<string, Node | null>();
  /** Whether a function draws that has drawn before, from the same random states. */
  isAgain = false;

  /** Gives the generator its state back when the capture ends. */
  remember(generator: Generator): void {
    if (!this.restores.has(generator)) this.restores.set(generator, generator.remember());
  }

  /** Sets the source that the next random call draws from. */
  willDraw(generator: Generator, source: DrawSource): void {
    this.remember(generator);
    if (!this.isAgain) this.next = source;
  }

  /**
   * The draw of a random call; null for a call that drops nothing. A call that did not draw has the
   * random state of an earlier one, and shares its draw.
   */
  nodeOf(recorder: Recorder, op: AnyOp, params: object, tags: ReadonlySet<string>): Node | null {
    if (!op.isRandom(params)) return null;
    const state = stateOf(params as DrawParams);
    const known = this.nodes.get(state);
    if (known === undefined && this.isAgain)
      recorder.unsupported('code that backward runs again drew numbers that forward did not draw,');
    if (this.next === null) {
      if (known === undefined) this.nodes.set(state, null);
      return known ?? null;
    }
    const node = recorder.graph.add({
      kind: 'effect',
      name: 'draw',
      effect: 'draw',
      params: { source: this.next },
      tags,
    });
    this.next = null;
    this.nodes.set(state, node);
    return node;
  }

  /** Makes a node the draw of a random state. */
  define(draw: DrawParams, node: Node): void {
    this.nodes.set(stateOf(draw), node);
  }

  /** Forgets draws whose nodes were removed. */
  forget(removed: ReadonlySet<Node>): void {
    for (const [state, node] of this.nodes)
      if (node !== null && removed.has(node)) this.nodes.delete(state);
    this.next = null;
  }

  /** Gives all generators their state back. */
  restore(): void {
    for (const bringBack of this.restores.values()) bringBack();
  }
}

/** Records that a generator is seeded. */
export function recordSeed(recorder: Recorder, generator: Generator, seed: number): void {
  recorder.regions.checkDraw(recorder, generator);
  recorder.draws.remember(generator);
  if (recorder.draws.isAgain) return;
  recorder.addEffect('seed', { params: { generator, seed } });
}

/** Records that the state of a generator is kept; the result records that it comes back. */
export function recordFork(recorder: Recorder, generator: Generator): () => void {
  recorder.draws.remember(generator);
  if (recorder.draws.isAgain) return () => {};
  const node = recorder.addEffect('keepRng', { params: { generator } });
  return () => void recorder.addEffect('restoreRng', { inputs: [{ node, output: 0 }] });
}

function stateOf({ seedLow, seedHigh, offset }: DrawParams): string {
  return `${seedLow},${seedHigh},${offset}`;
}
