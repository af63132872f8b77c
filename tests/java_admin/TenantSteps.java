import java.util.List;
import java.util.Set;
import org.apache.pulsar.client.admin.Tenants;
import org.apache.pulsar.common.policies.data.TenantInfo;

final class TenantSteps {
    static void run(Steps steps) {
        Tenants tenants = steps.admin.tenants();
        String tenant = steps.tenant;
        steps.get("tenants.get.missing", () -> tenants.getTenantInfo(tenant));
        steps.run("tenants.delete.missing", () -> tenants.deleteTenant(tenant));
        steps.run("tenants.update.missing", () -> tenants.updateTenant(tenant, info(steps.cluster)));
        steps.run("tenants.create.unknown cluster", () -> tenants.createTenant(tenant, info("nowhere")));
        steps.run("tenants.create.no cluster", () -> tenants.createTenant(tenant, TenantInfo.builder().build()));
        steps.run("tenants.create", () -> tenants.createTenant(tenant, info(steps.cluster, "first", "second")));
        steps.run("tenants.create.again", () -> tenants.createTenant(tenant, info(steps.cluster)));
        steps.get("tenants.get", () -> sorted(tenants.getTenantInfo(tenant)));
        steps.get("tenants.list", () -> List.of(tenants.getTenants().contains(tenant), tenants.getTenants().contains("public")));
        steps.run("tenants.update", () -> tenants.updateTenant(tenant, info(steps.cluster, "third")));
        steps.get("tenants.get.updated", () -> sorted(tenants.getTenantInfo(tenant)));
        steps.run("tenants.update.unknown cluster", () -> tenants.updateTenant(tenant, info("nowhere")));
        steps.run("tenants.create.bad name", () -> tenants.createTenant("a b", info(steps.cluster)));
        steps.run("tenants.namespace", () -> steps.admin.namespaces().createNamespace(tenant + "/n"));
        steps.run("tenants.delete.with namespace", () -> tenants.deleteTenant(tenant));
        steps.run("tenants.namespace.delete", () -> steps.admin.namespaces().deleteNamespace(tenant + "/n"));
        steps.run("tenants.delete", () -> tenants.deleteTenant(tenant));
        steps.run("tenants.delete.again", () -> tenants.deleteTenant(tenant));
    }

    private static TenantInfo info(String cluster, String... roles) {
        return TenantInfo.builder().adminRoles(Set.of(roles)).allowedClusters(Set.of(cluster)).build();
    }

    private static List<Object> sorted(TenantInfo info) {
        return List.of(info.getAdminRoles().stream().sorted().toList(), info.getAllowedClusters().stream().sorted().toList());
    }
}
