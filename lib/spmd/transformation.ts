/** Transformations of the graph of a train step: which passes it gets. */
import { checkFlag, optionsOf, unexpected } from '../core/options.js';
import { commFusionWithConcat } from './comm-fusion.js';
import { scheduleCommWait } from './comm-wait.js';
import { dumpGraphsToFiles } from './dump.js';
import { IterGraphModule } from './iter-graph-module.js';
import { removeCopyFromOptimizer } from './remove-copy.js';
import type { StepModule } from './step-module.js';

/** Makes what runs from the graph of a train step. */
export type StepTransformation = (module: StepModule) => IterGraphModule;

/** Options of {@link GraphModuleTransformation}. */
export interface GraphModuleTransformationOptions {
  /** Fuses the collectives of gradients, and moves the waits to where their results are needed. */
  enableGraphOptimization?: boolean;
  /** Compiles the graph of all iterations but the first and the last to encoded commands. */
  enableInductor?: boolean;
  /**
   * Writes the graphs before the passes and of the first, the last and all other iterations, as
   * text, as pictures and for Graphviz: true for the folder `spmd-graphs`, or the path of a folder.
   */
  dumpGraphs?: boolean | string;
  /** MiB of a bucket of fused collectives; 100 by default. */
  bucketSizeMb?: number;
}

/**
 * The transformation that `spmd.compile` applies by default: it runs the step, after the passes
 * that are enabled.
 *
 * @throws ArgumentError for options of other types
 * @see PyTorch `torch.distributed._spmd.gm_transformation.GraphModuleTransformation`
 */
export function GraphModuleTransformation(
  options: GraphModuleTransformationOptions = {},
): StepTransformation {
  const name = 'GraphModuleTransformation';
  const {
    enableGraphOptimization = false,
    enableInductor = false,
    dumpGraphs = false,
    bucketSizeMb = 100,
  } = optionsOf(name, options, 'enableGraphOptimization enableInductor dumpGraphs bucketSizeMb');
  for (const [key, value] of Object.entries({ enableGraphOptimization, enableInductor }))
    checkFlag(name, key, value);
  if (typeof dumpGraphs !== 'boolean' && typeof dumpGraphs !== 'string')
    throw unexpected(name, 'dumpGraphs', 'a boolean or the path of a folder', dumpGraphs);
  return (module) => {
    const folder = dumpGraphs === true ? 'spmd-graphs' : dumpGraphs;
    if (folder !== false) dumpGraphsToFiles({ before: module.graph }, folder);
    const gm = new IterGraphModule(module, { enableInductor });
    if (enableGraphOptimization) {
      commFusionWithConcat(gm, bucketSizeMb);
      scheduleCommWait(gm);
      removeCopyFromOptimizer(gm);
    }
    gm.finalizeSetup();
    const { setup, main, cleanup } = gm;
    if (folder !== false) dumpGraphsToFiles({ setup, main, cleanup }, folder);
    return gm;
  };
}
