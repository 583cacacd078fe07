#include "actors/supervisor.hpp"

#include "actors/exceptions.hpp"

#include <caf/actor_cast.hpp>
#include <caf/exit_reason.hpp>

namespace millrace {
namespace {

/// The exception's text, as die_with_text() kept it.
std::string text_of(const caf::error& reason) {
  if (reason.context().match_elements<std::string>())
    return reason.context().get_as<std::string>(0);
  return caf::to_string(reason);
}

} // namespace

void SupervisorState::start_device() {
  ending_device = false;
  try {
    const LocalDeviceActors actors = charges.spawn_device();
    device = {caf::actor_cast<caf::actor>(actors.prefill), caf::actor_cast<caf::actor>(actors.decode),
              caf::actor_cast<caf::actor>(actors.sampler)};
    for (const caf::actor& actor : device)
      self->monitor(actor);
    self->send(charges.dispatch, actors);
  } catch (const std::exception& exception) { // no thread, no memory: who would still answer, if this actor died of it?
    give_up(exception.what());
  }
}

void SupervisorState::give_up(const std::string& why) {
  charges.report(charges.device_name + " is given up: " + why);
  self->send(charges.dispatch, lost_atom_v);
  tell_death();
}

void SupervisorState::tell_death() const {
  if (charges.on_death)
    charges.on_death();
}

void SupervisorState::on_down(const caf::down_msg& down) {
  if (down.source == charges.dispatch.address()) {
    charges.report("dispatch ended: " + text_of(down.reason));
    charges.on_end_of_dispatch();
    tell_death();
    end_all();
  } else if (down.source == charges.tokenizer.address()) {
    charges.report("the tokenizer ended: " + text_of(down.reason));
    self->send_exit(charges.dispatch, caf::exit_reason::kill);
  } else {
    on_device_actor_down(down);
  }
}

void SupervisorState::on_device_actor_down(const caf::down_msg& down) {
  std::erase_if(device, [&](const caf::actor& actor) { return actor.address() == down.source; });
  if (!ending_device) {
    charges.report("an actor of " + charges.device_name + " ended: " + text_of(down.reason));
    end_device();
  }
  if (!device.empty())
    return;
  if (budget.spend(self->system().clock().now()))
    return start_device();
  give_up("its actors died too often");
}

void SupervisorState::end_device() {
  ending_device = true;
  for (const caf::actor& actor : device)
    self->send_exit(actor, caf::exit_reason::kill);
}

void SupervisorState::end_all() {
  end_device();
  self->send_exit(charges.tokenizer, caf::exit_reason::user_shutdown);
  self->send_exit(charges.dispatch, caf::exit_reason::user_shutdown);
  self->quit();
}

SupervisorActor::behavior_type supervisor_actor(SupervisorActor::stateful_pointer<SupervisorState> self,
                                                Charges charges) {
  die_with_text(self, Error::internal);
  self->set_down_handler([self](caf::down_msg& down) { self->state.on_down(down); });
  self->state.charges = std::move(charges);
  self->monitor(self->state.charges.tokenizer);
  self->monitor(self->state.charges.dispatch);
  self->state.start_device();
  return {
      [=](stop_atom) { self->state.end_all(); },
  };
}

} // namespace millrace
