/**
 * Where the random numbers of ranks that share a process begin: where the program that starts them
 * stands, if it has chosen that; so they do in processes, which run the program again. Else each
 * begins by chance, drawn from the seed of the run if it has one.
 */
import { currentGenerator, Generator, seedByChance } from '../../core/random.js';
import { randomFrom } from './scheduler.js';

/** @internal */
export interface RankRandom {
  /** Of each rank. */
  readonly generators: readonly Generator[];
  /** Where draws on meshes start, on all ranks. */
  readonly together: { readonly seed: number; readonly offset: number };
}

/** @internal */
export function rankRandom(worldSize: number, seed: number | null): RankRandom {
  const program = currentGenerator();
  const ranks = Array.from({ length: worldSize });
  if (program.isSeeded) {
    const together = program.origin();
    return { generators: ranks.map(() => Generator.at(together)), together };
  }
  const chance = seed === null ? Math.random : randomFrom(seed);
  return {
    generators: ranks.map(() => Generator.unseeded(seedByChance(chance))),
    together: { seed: seedByChance(chance), offset: 0 },
  };
}
