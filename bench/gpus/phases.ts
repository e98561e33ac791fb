/** Times the phases of steps by events on the stream of the GPU. */
import { cuda } from '../../lib/index.js';
import { median } from '../figures.js';

/** Milliseconds of the GPU, null on the CPU. */
export interface Phases {
  readonly forwardMs: number | null;
  readonly backwardMs: number | null;
  readonly optimizerMs: number | null;
}

/** Begin, and the ends of forward, backward and optimizer. */
const MARKS = 4;

export class PhaseTimer {
  isOn = false;
  private readonly events: cuda.Event[] = [];

  mark(): void {
    if (!this.isOn) return;
    const event = new cuda.Event({ enableTiming: true });
    event.record();
    this.events.push(event);
  }

  /** The medians of all steps that were marked, when they are done. */
  medians(): Phases {
    const ofPhase = (phase: number): number | null => {
      const times: number[] = [];
      for (let i = phase; i + 1 < this.events.length; i += MARKS)
        times.push((this.events[i] as cuda.Event).elapsedTime(this.events[i + 1] as cuda.Event));
      return times.length === 0 ? null : median(times);
    };
    return { forwardMs: ofPhase(0), backwardMs: ofPhase(1), optimizerMs: ofPhase(2) };
  }
}
