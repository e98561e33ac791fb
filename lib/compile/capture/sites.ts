/** Where in the program the nodes of a graph come from. */
import { callSite, callSiteBelow } from '../../core/call-site.js';
import type { NodeOrigin } from '../graph/node.js';
import { ModulePaths } from './module-paths.js';

/** The origins of the nodes of one graph. */
export class Sites {
  private readonly paths = new ModulePaths();
  private outer: string | null = null;

  /**
   * The origin of the op that is recorded. Those of gradients are far below the program, which has
   * called the pass in one place.
   */
  find(isGradient: boolean): NodeOrigin {
    const site = isGradient ? callSiteBelow(() => (this.outer ??= callSite())) : callSite();
    return { site, path: this.paths.ofCurrentModule() };
  }
}
