/** The paths of modules that run while a function is captured. */
import { callContext } from '../../core/call-context.js';
import { ModuleOfNode } from '../graph/graph-module.js';

interface ModuleTree {
  namedModules(): Iterable<[string, object]>;
}

export class ModulePaths {
  private readonly paths = new Map<object, ReadonlyMap<object, string>>();

  /**
   * The path of the innermost running module below the outermost one, such as `layers.0.fc`; empty
   * for the outermost one itself and outside of modules.
   */
  ofCurrentModule(): string {
    const { modules } = callContext;
    const [root] = modules;
    if (root instanceof ModuleOfNode) return root.path;
    if (root === undefined || modules.length === 1) return '';
    let known = this.paths.get(root);
    if (known === undefined) {
      known = new Map([...(root as ModuleTree).namedModules()].map(([path, m]) => [m, path]));
      this.paths.set(root, known);
    }
    return known.get(modules.at(-1) as object) ?? '';
  }
}
