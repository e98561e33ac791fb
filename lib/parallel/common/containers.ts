/** Modules that only hold others: a call of them throws. */
import { nn } from '../../index.js';

const CONTAINERS = [nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict];

/** Whether a module is a container whose forward only throws. */
export function isContainer(module: nn.AnyModule): boolean {
  return CONTAINERS.some((kind) => module instanceof kind);
}
