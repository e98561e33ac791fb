/** The modes of the library that change what a function computes. */
import { type GradMode, gradMode } from '../../autograd/grad-mode.js';
import { type Device, getDefaultDevice } from '../../core/device.js';
import { type DType, getDefaultDtype } from '../../core/dtype.js';
import { hooks } from '../../core/hooks.js';
import { lossMode } from '../../core/modes.js';
import { config } from '../config.js';
import { config as inductorConfig } from '../inductor.js';
import type { Difference } from './facts.js';

/** The modes that were on when it was made. */
export class ModeFacts {
  private readonly grad: GradMode = gradMode();
  private readonly dtype: DType = getDefaultDtype();
  private readonly device: Device = getDefaultDevice();
  private readonly autocast: string = hooks.autocastState();
  private readonly isLossParallel: boolean = lossMode.parallel;
  private readonly skipFsdpHooks: boolean = config.skipFsdpHooks;
  private readonly reorders: boolean | null = inductorConfig.reorderForComputeCommOverlap;

  /** Whether the same modes are on now. */
  matches(): boolean {
    return (
      gradMode() === this.grad &&
      getDefaultDtype() === this.dtype &&
      lossMode.parallel === this.isLossParallel &&
      config.skipFsdpHooks === this.skipFsdpHooks &&
      hooks.autocastState() === this.autocast &&
      inductorConfig.reorderForComputeCommOverlap === this.reorders &&
      getDefaultDevice() === this.device
    );
  }

  /** The modes by name, in words. */
  private get words(): Readonly<Record<string, string>> {
    const { grad, dtype, device, autocast, isLossParallel, skipFsdpHooks, reorders } = this;
    return {
      'the grad mode': grad.inference ? 'inference' : grad.enabled ? 'on' : 'off',
      'the default dtype': dtype.name,
      'the default device': String(device),
      'mixed precision': /\w/.test(autocast) ? autocast : 'off',
      lossParallel: isLossParallel ? 'on' : 'off',
      'compiler.config.skipFsdpHooks': skipFsdpHooks ? 'on' : 'off',
      'inductor.config.reorderForComputeCommOverlap': String(reorders),
    };
  }

  /** The mode that differs now. */
  difference(): Difference | null {
    const now = new ModeFacts().words;
    for (const [path, before] of Object.entries(this.words))
      if (before !== now[path]) return { path, before, now: now[path] as string };
    return null;
  }

  sentences(): string[] {
    return Object.entries(this.words).map(([path, word]) => `${path} is ${word}`);
  }
}
