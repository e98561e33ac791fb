/**
 * The forward of a group: that of its module or, for several modules, from the first of them that
 * runs to the last one. Where nothing would end that, as outside of a forward of the root, each
 * module runs by itself.
 */
import { isGradEnabled, type nn } from '../../index.js';

export class GroupForward {
  private readonly modules: readonly nn.AnyModule[];
  /** Modules that have not run; null while no forward of the group runs. */
  private waiting: Set<nn.AnyModule> | null = null;
  /** How many modules of the group are running, one in the other. */
  private depth = 0;
  private isRecorded = false;

  constructor(modules: readonly nn.AnyModule[]) {
    this.modules = modules;
  }

  /** Whether it goes on when the module that runs has ended. */
  get isRunning(): boolean {
    return this.waiting !== null;
  }

  /** A module begins. Whether the group gathers: it is the first, or the first with gradients. */
  begins(): boolean {
    if (this.modules.length === 1) return true;
    this.depth++;
    if (this.waiting !== null && (this.isRecorded || !isGradEnabled())) return false;
    this.waiting ??= new Set(this.modules);
    this.isRecorded = isGradEnabled();
    return true;
  }

  /** A module has ended. Whether the group has. `waits`: for the modules that have not run. */
  ends(module: nn.AnyModule, waits: boolean): boolean {
    if (this.modules.length === 1) return true;
    this.depth--;
    this.waiting?.delete(module);
    if (this.depth > 0 || (waits && this.waiting !== null && this.waiting.size > 0)) return false;
    this.clear();
    return true;
  }

  clear(): void {
    this.waiting = null;
    this.depth = 0;
  }
}
