/**
 * Generators and iterators that the program goes on with from call to call: a graph would repeat
 * what they gave at the capture, so their next step ends the capture before it is taken.
 */
import { isLibraryGenerator } from '../../core/library-generators.js';
import type { Recorder } from './recorder.js';
import { INSTEAD_OF_STEPS } from './refusals.js';

/** The prototype of all generators, whose `next` a capture replaces. */
const prototype = Object.getPrototypeOf(function* () {}).prototype as Generator;
const { next } = prototype;

/** Runs `fn`, and refuses each step of a generator of the program before it is taken. */
export function watchingGenerators<T>(recorder: Recorder, fn: () => T): T {
  const before = prototype.next;
  prototype.next = function (this: Generator, ...value) {
    if (!isLibraryGenerator(this))
      recorder.unsupported('a generator took a step', INSTEAD_OF_STEPS);
    return Reflect.apply(next, this, value);
  };
  try {
    return fn();
  } finally {
    prototype.next = before;
  }
}

/** Refuses what a module or an argument holds that guards cannot compare. */
export function refuseOpaque(recorder: Recorder): void {
  const { iterator, extended, uncompared } = recorder.guards;
  if (iterator !== null) recorder.unsupported(`${iterator} is an iterator`, INSTEAD_OF_STEPS);
  if (extended !== null)
    recorder.unsupported(`${extended} has properties beside its items`, 'pass its values, use it');
  if (uncompared !== null)
    recorder.unsupported(
      `${uncompared} is one of too many instances to compare`,
      'use what it needs of them',
    );
}
